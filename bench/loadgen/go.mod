module pocketmq/loadgen

go 1.21
