"""The property names that RocketMQ 5.3.3 itself reads from its configuration files.

They are the settable properties of the reference's configuration classes. If a file has a key that
is listed here but is not a field of our configuration, the key has no effect here. A key that is in
neither is probably misspelt. `remoting.properties_file.load_config` tells the two apart.
"""

from typing import Final


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

BROKER_KEYS: Final = (
    BROKER_CONFIG | MESSAGE_STORE_CONFIG | NETTY_SERVER_CONFIG | NETTY_CLIENT_CONFIG | AUTH_CONFIG
)
"""What an official broker reads from broker.conf."""

NAMESRV_KEYS: Final = NAMESRV_CONFIG | NETTY_SERVER_CONFIG | NETTY_CLIENT_CONFIG
"""What an official name server reads from namesrv.conf."""
PROXY_KEYS: Final = PROXY_CONFIG | AUTH_CONFIG | NETTY_CLIENT_CONFIG
