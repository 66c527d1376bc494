"""Make pocketmq/proxy/proto/service_pb2.py and its stub from service.proto.

    python -m pip install grpcio-tools==1.62.3 mypy-protobuf==3.6.0
    python scripts/generate_proto.py

The module holds the descriptor that protoc makes, and builds the classes from it in a descriptor
pool of its own when it is imported. protoc's own Python code would put them into the default pool.
There they would collide with those of the official Python client in the same process, as in tests
that embed a server. And it may only be imported with a runtime that is as new as protoc; a
descriptor is good for all of them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PROTO = Path(__file__).parents[1] / "pocketmq" / "proxy" / "proto"

MODULE = '''\
"""The messages of service.proto. Made by scripts/generate_proto.py: do not edit."""

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

_pool = DescriptorPool()
for _known in (duration_pb2, timestamp_pb2):
    _pool.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)
_pool.AddSerializedFile(
{descriptor}
)
DESCRIPTOR = _pool.FindFileByName("service.proto")
for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = GetMessageClass(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = EnumTypeWrapper(_enum)
    for _value in _enum.values:
        globals()[_value.name] = _value.number
'''


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, "service.binpb")
        subprocess.run(
            [
                sys.executable,
                "-m",
                "grpc_tools.protoc",
                f"-I{PROTO}",
                f"--descriptor_set_out={made}",
                f"--mypy_out={PROTO}",
                str(PROTO / "service.proto"),
            ],
            check=True,
        )
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        descriptors = FileDescriptorSet.FromString(made.read_bytes())
    data = descriptors.file[0].SerializeToString()
    lines = [f"    {data[at : at + 64]!r}" for at in range(0, len(data), 64)]
    (PROTO / "service_pb2.py").write_text(MODULE.format(descriptor="\n".join(lines)))


if __name__ == "__main__":
    main()
