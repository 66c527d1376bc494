"""That none of mqadmin's commands that operators use went without a comparison of both makes."""

from __future__ import annotations

import ast
from pathlib import Path

COMMANDS = """
    addWritePerm allocateMQ brokerConsumeStats brokerStatus checkMsgSendRT cleanExpiredCQ
    cleanUnusedTopic cloneGroupOffset clusterList clusterRT consumeMessage consumerConnection
    consumerProgress consumerStatus deleteExpiredCommitLog deleteKvConfig deleteSubGroup deleteTopic
    exportConfigs exportMetadata getBrokerConfig getConsumerConfig getNamesrvConfig haStatus
    printMsg printMsgByQueue producer producerConnection queryCq queryMsgById queryMsgByKey
    queryMsgByOffset queryMsgByUniqueKey resetOffsetByTime sendMessage sendMsgStatus
    skipAccumulatedMessage statsAll topicClusterList topicList topicRoute topicStatus
    updateBrokerConfig updateKvConfig updateNamesrvConfig updateOrderConf updateSubGroup
    updateSubGroupList updateTopic updateTopicList updateTopicPerm wipeWritePerm
"""


def test_every_command_is_run_by_a_test() -> None:
    run = {
        node.value
        for path in Path(__file__).parent.glob("test_mqadmin*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(COMMANDS.split()) - run == set()
