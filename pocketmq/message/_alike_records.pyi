from pocketmq.message.alike_records import read_alike_in_python

read_alike = read_alike_in_python
