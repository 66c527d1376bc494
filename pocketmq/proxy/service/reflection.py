"""grpc.reflection.v1alpha: tools such as grpcurl query the services and messages.

The official proxy always answers such queries, without authentication. Here that is a setting
(`enableGrpcReflection`). The messages are described here, so that no other package is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from pocketmq.proxy.proto import service_pb2
from pocketmq.proxy.rpc import Call, Duplex, GrpcStatus, Method, Outgoing

SERVICES: Final = ("apache.rocketmq.v2.MessagingService", "grpc.health.v1.Health")
_PACKAGES: Final = ("grpc.reflection.v1alpha", "grpc.reflection.v1")
_FILES: Final = {
    descriptor.name: descriptor.serialized_pb
    for descriptor in (
        service_pb2.DESCRIPTOR,
        duration_pb2.DESCRIPTOR,
        timestamp_pb2.DESCRIPTOR,
    )
}


def reflection_methods() -> Mapping[bytes, Method]:
    """Return the method in both versions."""
    methods: dict[bytes, Method] = {}
    for package in _PACKAGES:
        request, response = _messages(package)

        class Stream:
            """One client's queries."""

            def __init__(self, call: Call, outgoing: Outgoing, response: Any = response) -> None:
                self._outgoing = outgoing
                self._response = response

            def received(self, request: Any) -> None:
                answer = self._response(original_request=request)
                _answer(request, answer)
                self._outgoing.send(answer)

            def closed(self) -> None:
                pass

        path = f"/{package}.ServerReflection/ServerReflectionInfo"
        methods[path.encode()] = Duplex(request, Stream)
    return methods


def _answer(request: Any, answer: Any) -> None:
    kind = request.WhichOneof("message_request")
    if kind == "list_services":
        for name in SERVICES:
            answer.list_services_response.service.add(name=name)
        return
    content = None
    if kind == "file_by_filename":
        content = _FILES.get(request.file_by_filename)
    elif kind == "file_containing_symbol":
        content = _containing(request.file_containing_symbol)
    if content is None:
        answer.error_response.error_code = GrpcStatus.NOT_FOUND
        answer.error_response.error_message = f"{kind} is not known"
    else:
        answer.file_descriptor_response.file_descriptor_proto.append(content)


def _containing(symbol: str) -> bytes | None:
    pool = service_pb2.DESCRIPTOR.pool
    try:
        return _FILES.get(pool.FindFileContainingSymbol(symbol).name)
    except KeyError:
        return None


def _messages(package: str) -> tuple[Any, Any]:
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    _describe(
        file.message_type.add(name="ServerReflectionRequest"),
        "message_request",
        ("host", 1, "string", False),
        ("file_by_filename", 3, "string", True),
        ("file_containing_symbol", 4, "string", True),
        ("all_extension_numbers_of_type", 6, "string", True),
        ("list_services", 7, "string", True),
    )
    _describe(
        file.message_type.add(name="FileDescriptorResponse"),
        "",
        ("file_descriptor_proto", 1, "repeated bytes", False),
    )
    _describe(file.message_type.add(name="ServiceResponse"), "", ("name", 1, "string", False))
    _describe(
        file.message_type.add(name="ListServiceResponse"),
        "",
        ("service", 1, f"repeated .{package}.ServiceResponse", False),
    )
    _describe(
        file.message_type.add(name="ErrorResponse"),
        "",
        ("error_code", 1, "int32", False),
        ("error_message", 2, "string", False),
    )
    _describe(
        file.message_type.add(name="ServerReflectionResponse"),
        "message_response",
        ("valid_host", 1, "string", False),
        ("original_request", 2, f".{package}.ServerReflectionRequest", False),
        ("file_descriptor_response", 4, f".{package}.FileDescriptorResponse", True),
        ("list_services_response", 6, f".{package}.ListServiceResponse", True),
        ("error_response", 7, f".{package}.ErrorResponse", True),
    )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return (
        GetMessageClass(find(f"{package}.ServerReflectionRequest")),
        GetMessageClass(find(f"{package}.ServerReflectionResponse")),
    )


def _describe(message: DescriptorProto, choice: str, *fields: tuple[str, int, str, bool]) -> None:
    """Add fields: name, number, type, and whether it belongs to the `choice` (oneof)."""
    types = {
        "string": FieldDescriptorProto.TYPE_STRING,
        "bytes": FieldDescriptorProto.TYPE_BYTES,
        "int32": FieldDescriptorProto.TYPE_INT32,
    }
    if choice:
        message.oneof_decl.add(name=choice)
    for name, number, kind, chosen in fields:
        field = message.field.add(name=name, number=number)
        repeated, _, bare = kind.rpartition(" ")
        field.label = (
            FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        )
        if bare in types:
            field.type = types[bare]
        else:
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = bare
        if chosen:
            field.oneof_index = 0
