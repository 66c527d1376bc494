"""The property names that RocketMQ 5.3.3 itself reads from its configuration files, and those that
5.4 and 5.5 added.

They are the settable properties of the reference's configuration classes. A key that is listed here
but is not a field of pocketmq's configuration has no effect. A key that is in neither is probably
misspelt. `remoting.properties_file.load_config` distinguishes them.

Some keys without effect protect messages or access, or change the format of the store. Ignoring
them would be worse than not starting, so `REFUSED_BY_BROKER` and `REFUSED_BY_NAMESRV` refuse the
values that matter, and say what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pocketmq.remoting.settings.properties_file import Check


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BROKER_CONFIG: Final = _names(
    """
    accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity aclEnable adminBrokerThreadPoolNums
    adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync
    appendCkAsync asyncSendEnable autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    brokerClusterName brokerConfigPath brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerId brokerIP1 brokerIP2 brokerName brokerNotActiveTimeoutMillis
    brokerPermission brokerTopicEnable cgColdReadThreshold channelExpiredTimeout
    checkSyncStateSetPeriod cleanOfflineBrokerInterval clearRetryTopicWhenDeleteTopic
    clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums clusterTopicEnable
    coldCtrStrategyEnable commercialBaseCount commercialSizePerMsg compatibleWithOldNameSrv
    compressedRegister configBlackList configManagerVersion consumerFallbehindThreshold
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
    consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    defaultMessageRequestMode defaultPopShareQueueNum defaultTopicQueueNums
    delayOffsetUpdateVersionStep disableConsumeIfConsumerReadSlowly enableBroadcastOffsetStore
    enableCalcFilterBitMap enableControllerMode enableCreateSysGroup enableDetailStat
    enableFastChannelEventProcess enableLmqStats enableMixedMessageType enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
    enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePropertyFilter
    enableRegisterProducer enableRemoteEscape enableRetryTopicV2 enableSingleTopicRegister
    enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitRegistration
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    expectConsumerNumUseFilter fetchControllerAddrByDnsLookup fetchNamesrvAddrByAddressServer
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval filterDataCleanTimeSpan filterSupportRetry
    flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval forceRegister forwardTimeout
    globalColdReadThreshold heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode
    inBrokerContainer initPopOffsetByCheckMsgInMem isolateLogEnable listenPort litePullMessageEnable
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
    longPollingEnable maxErrorRateOfBloomFilter maxPopPollingSize maxStatsIdleTimeInMinutes
    messageStorePlugIn metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
    metricsPromExporterHost metricsPromExporterPort msgTraceTopicName namesrvAddr
    notifyConsumerIdsChangedEnable popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapSize popPollingSize
    popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
    printChannelGroups printChannelGroupsMinNum processReplyMessageThreadPoolNums
    pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
    realTimeNotifyConsumerChange recallMessageEnable recoverConcurrently recoverThreadPoolNums
    regionId registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable
    rejectTransactionMessage replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1
    reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverLoadBalancerEnable shortPollingTimeMills skipPreOnline skipWhenCKRePutReachMaxTimes
    slaveReadEnable splitRegistrationSize startAcceptSendRequestTimeStamp storeReplyMessageEnable
    subscriptionExpiredTimeout syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
    syncControllerMetadataPeriod traceOn traceTopicEnable transactionCheckInterval
    transactionCheckMax transactionMetricFlushInterval transactionOpBatchInterval
    transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap updateNameServerAddrPeriod
    usePIDColdCtrStrategy useServerSideResetOffset useStaticSubscription
    validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
    waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    """
)
"""BrokerConfig and BrokerIdentity."""

MESSAGE_STORE_CONFIG: Final = _names(
    """
    accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio allAckInSyncStateSet asyncLearner
    autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt
    bottomMostCompressionTypeForConsumeQueueStore brokerRole checkCRCOnRecover
    cleanFileForciblyEnable cleanResourceInterval cleanRocksDBDirtyCQIntervalMin
    cleanSwapedMapInterval coldDataFlowControlEnable coldDataScanEnable commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
    compactionMappedFileSize compactionScheduleInternal compactionThreadNum
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dataReadAheadEnable
    debugLockEnable defaultQueryMaxNum deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
    deleteFileBatchMax deleteWhen destroyMapedFileIntervalForcibly disappearTimeAfterStart
    diskFallRecorded diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio
    dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread dLegerGroup dLegerPeers
    dLegerSelfId duplicationEnable enableAsyncReput enableAutoInSyncReplicas enableBatchPush
    enableBuildConsumeQueueConcurrently enableCleanExpiredOffset enableCompaction
    enableConsumeQueueExt enabledAppendPropCRC enableDLegerCommitLog enableLmq enableMultiDispatch
    enableRocksDBLog enableScheduleAsyncDeliver enableScheduleMessageStats
    fastFailIfNoBufferInStorePool fileReservedTime flushCommitLogLeastPages
    flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
    flushConsumeQueueThoroughInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog
    flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC
    haFlowControlEnable haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync
    haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize inSyncReplicas
    logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    logicQueueSwapMapReserveFileNum mappedFileSizeCommitLog mappedFileSizeConsumeQueue
    mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog mappedFileSwapEnable
    mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum
    maxChecksumRange maxConsumeQueueScan maxFilterMessageSize maxHashSlotNum
    maxHaTransferByteInSecond maxIndexNum maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch
    maxOffsetMapSize maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushIntervalMs
    messageDelayLevel messageIndexEnable messageIndexSafe minInSyncReplicas offsetCheckInSlave
    osPageCacheBusyTimeOutMills preferredLeaderId pullBatchMaxMessageCount
    putConsumeQueueDataByFileChannel putMessageTimeout putMsgIndexHightWater
    readOnlyCommitLogStorePaths readUnCommitted realTimePersistRocksDBConfig
    recheckReputOffsetFromCq redeleteHangedFileInterval replicasPerDiskPartition
    rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable slaveTimeout spinLockCollisionRetreatOptimalDegree
    statRocksDBCQIntervalSec storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog
    storePathEpochFile storePathRootDir storeType syncFlushTimeout syncFromLastFile
    syncMasterFlushOffsetWhenStartup timerColdDataCheckIntervalMs timerCongestNumEachSlot
    timerEnableCheckMetrics timerEnableRetryUntilSuccess timerFlushIntervalMs
    timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold
    timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot
    timerSkipUnknownError timerStopEnqueue timerWheelEnable topicQueueLockNum totalReplicas
    transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage useABSLock
    useReentrantLockWhenPutMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable
    """
)
"""MessageStoreConfig."""

NETTY_SERVER_CONFIG: Final = _names(
    """
    bindAddress enableShutdownGracefully listenPort serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
    """
)
"""NettyServerConfig."""

NETTY_CLIENT_CONFIG: Final = _names(
    """
    channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
    enableReconnectForGoAway maxReconnectIntervalTimeSeconds scanAvailableNameSrv socksProxyConfig
    useTLS writeBufferHighWaterMark writeBufferLowWaterMark
    """
)
"""NettyClientConfig."""

NAMESRV_CONFIG: Final = _names(
    """
    clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest configBlackList
    configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity
    deleteTopicWithBrokerRegistration enableAllTopicList enableControllerInNamesrv enableTopicList
    kvConfigPath needWaitForService notifyMinBrokerIdChanged orderMessageEnable productEnvName
    returnOrderTopicConfigToBroker rocketmqHome scanNotActiveBrokerInterval supportActingMaster
    unRegisterBrokerQueueCapacity waitSecondsForService
    """
)
"""NamesrvConfig."""

AUTH_CONFIG: Final = _names(
    """
    aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath authenticationEnabled
    authenticationMetadataProvider authenticationProvider authenticationStrategy
    authenticationWhitelist authorizationEnabled authorizationMetadataProvider authorizationProvider
    authorizationStrategy authorizationWhitelist clusterName configName initAuthenticationUser
    innerClientAuthenticationCredentials migrateAuthFromV1Enabled
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum userCacheExpiredSecond
    userCacheMaxNum userCacheRefreshSecond
    """
)
"""AuthConfig."""

PROXY_CONFIG: Final = _names(
    """
    aclCacheExpiredSeconds aclCacheMaxNum aclCacheRefreshSeconds brokerConfigPath
    channelExpiredInSeconds channelExpiredTimeout consumerProcessorThreadPoolNums
    consumerProcessorThreadPoolQueueCapacity contextExpiredInSeconds defaultInvisibleTimeMills
    detectInterval detectTimeout enableAclRpcHookForClusterMode enableBatchAck enableGrpcEpoll
    enableMessageBodyEmptyCheck enablePrintJstack enableProxyAutoRenew
    enableRemotingLocalProxyGrpc enableTopicMessageTypeCheck grpcBossLoopNum
    grpcClientConsumerLongPollingBatchSize grpcClientConsumerMaxLongPollingTimeoutMillis
    grpcClientConsumerMinLongPollingTimeoutMillis grpcClientIdleTimeMills
    grpcClientManagerThreadPoolNums grpcClientManagerThreadQueueCapacity
    grpcClientProducerBackoffInitialMillis grpcClientProducerBackoffMaxMillis
    grpcClientProducerBackoffMultiplier grpcClientProducerMaxAttempts grpcConsumerThreadPoolNums
    grpcConsumerThreadQueueCapacity grpcMaxInboundMessageSize grpcProducerThreadPoolNums
    grpcProducerThreadQueueCapacity grpcProxyRelayRequestTimeoutInSeconds
    grpcRouteThreadPoolNums grpcRouteThreadQueueCapacity grpcServerPort grpcShutdownTimeSeconds
    grpcThreadPoolNums grpcThreadPoolQueueCapacity grpcTransactionThreadPoolNums
    grpcTransactionThreadQueueCapacity grpcWorkerLoopNum heartbeatSyncerThreadPoolNums
    heartbeatSyncerThreadPoolQueueCapacity heartbeatSyncerTopicClusterName
    heartbeatSyncerTopicName invisibleTimeMillisWhenClear localProxyConnectTimeoutMs
    localServeAddr lockTimeoutMsInHandleGroup longPollingReserveTimeInMillis maxDelayTimeMills
    maxInvisibleTimeMills maxMessageGroupSize maxMessageSize maxRenewRetryTimes
    maxTransactionRecoverySecond maxUserPropertySize messageDelayLevel metadataThreadPoolNums
    metadataThreadPoolQueueCapacity metricCollectorAddress metricCollectorMode
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsPromExporterHost
    metricsPromExporterPort minInvisibleTimeMillsForRecv namesrvAddr namesrvDomain
    namesrvDomainSubgroup printJstackInMillis printThreadPoolStatusInMillis
    producerProcessorThreadPoolNums producerProcessorThreadPoolQueueCapacity proxyClusterName
    proxyMode proxyName regionId remotingAccessAddr remotingDefaultThreadPoolNums
    remotingDefaultThreadPoolQueueCapacity remotingHeartbeatThreadPoolNums
    remotingHeartbeatThreadPoolQueueCapacity remotingListenPort
    remotingPullMessageThreadPoolNums remotingPullThreadPoolQueueCapacity
    remotingSendMessageThreadPoolNums remotingSendThreadPoolQueueCapacity
    remotingTopicRouteThreadPoolNums remotingTopicRouteThreadPoolQueueCapacity
    remotingUpdateOffsetThreadPoolNums remotingUpdateOffsetThreadPoolQueueCapacity
    remotingWaitTimeMillsInDefaultQueue remotingWaitTimeMillsInHeartbeatQueue
    remotingWaitTimeMillsInPullQueue remotingWaitTimeMillsInSendQueue
    remotingWaitTimeMillsInTopicRouteQueue remotingWaitTimeMillsInUpdateOffsetQueue
    renewAheadTimeMillis renewMaxThreadPoolNums renewMaxTimeMillis renewSchedulePeriodMillis
    renewThreadPoolNums renewThreadPoolQueueCapacity rocketMQClusterName rocketmqMQClientNum
    sendLatencyEnable startDetectorEnable subscriptionGroupConfigCacheExpiredSeconds
    subscriptionGroupConfigCacheMaxNum subscriptionGroupConfigCacheRefreshSeconds tlsCertPath
    tlsKeyPath tlsTestModeEnable topicConfigCacheExpiredSeconds topicConfigCacheMaxNum
    topicConfigCacheRefreshSeconds topicRouteServiceCacheExpiredSeconds
    topicRouteServiceCacheMaxNum topicRouteServiceCacheRefreshSeconds
    topicRouteServiceThreadPoolNums topicRouteServiceThreadPoolQueueCapacity traceOn
    transactionDataExpireMillis transactionDataExpireScanPeriodMillis transactionDataMaxNum
    transactionDataMaxWaitClearMillis transactionHeartbeatBatchNum
    transactionHeartbeatPeriodSecond transactionHeartbeatThreadPoolNums
    transactionHeartbeatThreadPoolQueueCapacity useDelayLevel useEndpointPortFromRequest
    userCacheExpiredSeconds userCacheMaxNum userCacheRefreshSeconds userPropertyMaxNum
    """
)

CONTROLLER_CONFIG: Final = _names(
    """
    controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId
    controllerRequestThreadPoolQueueCapacity controllerStorePath controllerThreadPoolNums
    controllerType electMasterMaxRetryCount enableElectUncleanMaster jRaftControllerRPCAddr
    jRaftElectionTimeoutMs jRaftGroupId jRaftInitConf jRaftScanWaitTimeoutMs jRaftServerId
    jRaftSnapshotIntervalSecs jraftConfig mappedFileSize notifyBrokerRoleChanged processReadEvent
    scanInactiveMasterInterval
    """
)
"""ControllerConfig and JraftConfig, as far as no other class has the same names: a name server with
enableControllerInNamesrv reads them from its own file."""

TIERED_STORE_CONFIG: Final = _names(
    """
    commitLogRollingInterval commitLogRollingMinimumSize objectStoreAccessKey objectStoreBucket
    objectStoreEndpoint objectStoreSecretKey readAheadCacheEnable readAheadCacheExpireDuration
    readAheadCacheSizeThresholdRate readAheadMessageCountThreshold readAheadMessageSizeThreshold
    recordGetMessageResult tieredBackendServiceProvider tieredMetadataServiceProvider
    tieredStorageLevel tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize
    tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable tieredStoreDeleteFileInterval
    tieredStoreFilePath tieredStoreFileReservedTime tieredStoreGroupCommit
    tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout
    tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum
    tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit
    """
)
"""The MessageStoreConfig of the tiered storage, as far as no other class has the same names."""

BROKER_LATER: Final = _names(
    """
    appendTopicForTimerDeleteKey batchDeleteSubscriptionGroupMaxRate batchDeleteTopicMaxRate
    checkCommitLogOffsetOnRecover combineAssignOffsetCQType combineCQEnableCheckSelf
    combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
    combineCQUseRocksdbForLmq commitLogRecoverMaxNum correctMinOffsetMadviseEnable
    enableAcceleratedRecovery enableConnectionMetrics enableLagAndDlqMetrics enableLiteEventMode
    enableLitePopLog enableLmqQuota enableLogConsumeQueueRepeatedlyBuildWhenRecover
    enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics enableRequestMetrics
    enableRunningFlagsInFlush enableSplitMetadata enableStatsMetrics enableTransactionMetrics
    indexFileReadEnable indexFileWriteEnable indexRocksDBEnable liteEventCapacityCacheTtlMs
    liteEventCheckInterval liteEventFullDispatchDelayTime
    liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable
    liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
    liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
    maxCheckMessageReuseBufferSize maxClientEventCount maxLiteSubscriptionCount
    maxMessageFilterNumForNotification maxRocksDBIndexQueryDays metricsExportBatchMaxConcurrent
    metricsExportBatchSplitEnabled metricsExportOtelMemoryMode minLiteTTl
    persistConsumerOffsetIncrementally popFromRetryProbabilityForPriority
    popOrderLockTimerTickMs popOrderLockTimerTicksPerWheel popPollingMapExpireTimeSeconds
    popReviveConcurrency popReviveSkipIfGroupAbsent popRocksdbBlockCacheSize
    popRocksdbWriteBufferSize priorityOrderAsc rocksdbCQSelectiveDoubleWriteEnable
    rocksdbMaxSizeAmplificationPercent sharedByteBufferNum splitMetadataSize
    timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerRocksDBEnable
    timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
    timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
    timerWheelSnapshotFlush timerWheelSnapshotIntervalMs transRocksDBEnable
    transWriteOriginTransHalfEnable useMessageFilterForNotification useSeparateRetryQueue
    useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs writeWithoutMmap
    """
)
"""Keys of BrokerConfig and MessageStoreConfig in 5.4 and 5.5 that 5.3.3 lacks."""

PROXY_LATER: Final = _names(
    """
    grpcMaxConcurrentCallsPerConnection maxLiteRenewNumPerChannel maxLiteTopicSize
    maxSyncLiteSubscriptionRate returnHandleGroupThreadPoolNums tlsCertWatchIntervalMs
    tlsKeyPassword
    """
)
"""Keys of ProxyConfig in 5.4 and 5.5 that 5.3.3 lacks."""

BROKER_KEYS: Final = (
    BROKER_CONFIG
    | MESSAGE_STORE_CONFIG
    | TIERED_STORE_CONFIG
    | BROKER_LATER
    | NETTY_SERVER_CONFIG
    | NETTY_CLIENT_CONFIG
    | AUTH_CONFIG
)
"""The keys that an official broker reads from broker.conf."""

NAMESRV_KEYS: Final = NAMESRV_CONFIG | CONTROLLER_CONFIG | NETTY_SERVER_CONFIG | NETTY_CLIENT_CONFIG
"""The keys that an official name server reads from namesrv.conf."""
PROXY_KEYS: Final = PROXY_CONFIG | PROXY_LATER | AUTH_CONFIG | NETTY_CLIENT_CONFIG


# Refused settings


def _on(key: str, why: str) -> Check:
    """Refuse `true`."""
    return lambda value: f"{key} = true: {why}" if value.lower() == "true" else None


def _set(key: str, why: str) -> Check:
    """Refuse any value."""
    return lambda value: f"{key} = {value[:200]!r}: {why}" if value else None


def _containing(key: str, text: str, why: str) -> Check:
    """Refuse a value that contains `text`, in any case."""
    return lambda value: f"{key} = {value[:200]!r}: {why}" if text in value.lower() else None


def _foreign_class(key: str) -> Check:
    """Refuse a class that is not RocketMQ's own."""
    why = (
        "a class that is not RocketMQ's own decides about access, and it does not run here. Leave "
        "the setting out to have the rules of RocketMQ's own class"
    )
    return lambda value: (
        f"{key} = {value[:200]!r}: {why}"
        if value and not value.startswith("org.apache.rocketmq.")
        else None
    )


_IN_ROCKSDB: Final = (
    "RocksDB is not used here. Start the official broker without this setting until nothing is "
    "left in RocksDB, and set it to false here"
)
_PROVIDERS: Final = (
    "authenticationProvider",
    "authenticationMetadataProvider",
    "authenticationStrategy",
    "authorizationProvider",
    "authorizationMetadataProvider",
    "authorizationStrategy",
)
_ACCESS: Final[Mapping[str, Check]] = {key: _foreign_class(key) for key in _PROVIDERS}

REFUSED_BY_BROKER: Final[Mapping[str, Check]] = {
    "aclEnable": _on(
        "aclEnable",
        "access lists of ACL 1.0 are not read, so this broker would be open to everybody. Take "
        "over the users with `pocketmq auth import plain_acl.yml STORE/config/auth.json`, and set "
        "authenticationEnabled = true and authorizationEnabled = true instead",
    ),
    "configManagerVersion": _containing(
        "configManagerVersion",
        "v2",
        "topics, groups and offsets in RocksDB are not read. Export them with "
        "`mqadmin rocksDBConfigToJson` and leave the setting out",
    ),
    "enableConsumeQueueExt": _on(
        "enableConsumeQueueExt",
        "extended consume queues are not read or written, and their entries would filter the wrong "
        "messages. Set it to false in the official broker, and let its messages expire first",
    ),
    "enableDLegerCommitLog": _on(
        "enableDLegerCommitLog",
        "DLedger is not served, so this broker would be a master of its own in each place. Use a "
        "controller group (enableControllerMode = true, docs/replication.md), or a master with "
        "slaves",
    ),
    "indexRocksDBEnable": _on("indexRocksDBEnable", _IN_ROCKSDB),
    "messageStorePlugIn": _set(
        "messageStorePlugIn",
        "plug-ins of the store do not run, so nothing would be copied to the tiered storage, and "
        "what lies only there could not be pulled. Leave it out to go on without; `pocketmq sync` "
        "archives a store, and `pocketmq query` reads a tiered storage",
    ),
    "readOnlyCommitLogStorePaths": _set(
        "readOnlyCommitLogStorePaths",
        "a commit log lies in one directory here. Move its files to storePathCommitLog and leave "
        "the setting out",
    ),
    "rocksdbCQDoubleWriteEnable": _on(
        "rocksdbCQDoubleWriteEnable",
        "consume queues are not written to RocksDB as well, so those there would lack messages. "
        "Set it to false, and remove the RocksDB files before an official broker writes them again",
    ),
    "rocksdbCQSelectiveDoubleWriteEnable": _on("rocksdbCQSelectiveDoubleWriteEnable", _IN_ROCKSDB),
    "storePathBrokerIdentity": _set(
        "storePathBrokerIdentity",
        "the identity of a member of a controller group lies in storePathRootDir here; without it "
        "the broker would be a new member. Move the file to storePathRootDir/brokerIdentity and "
        "leave the setting out",
    ),
    "storePathCommitLog": _containing(
        "storePathCommitLog",
        ",",
        "a commit log lies in one directory here. Move the files of all directories into one, and "
        "name that",
    ),
    "storeType": _containing(
        "storeType",
        "rocksdb",
        "queues, topics, groups and offsets in RocksDB are not read. Export the tables with "
        "`mqadmin rocksDBConfigToJson`, start the official broker once with storeType = default, "
        "and leave the setting out here",
    ),
    "timerRocksDBEnable": _on("timerRocksDBEnable", _IN_ROCKSDB),
    "transRocksDBEnable": _on("transRocksDBEnable", _IN_ROCKSDB),
    "useSingleRocksDBForAllConfigs": _on("useSingleRocksDBForAllConfigs", _IN_ROCKSDB),
    **_ACCESS,
}
"""Checks of the settings that a broker cannot honour."""

REFUSED_BY_NAMESRV: Final[Mapping[str, Check]] = {
    "enableControllerInNamesrv": _on(
        "enableControllerInNamesrv",
        "no controller runs here, so no broker would become a master. Run the controllers of "
        "RocketMQ (bin/mqcontroller), name them in controllerAddr of the brokers, and leave the "
        "setting out",
    ),
    **_ACCESS,
}
"""The same for a name server."""
