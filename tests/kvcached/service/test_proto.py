"""kvcached.proto is what the service speaks, and enough to write a client: the one of docs/kvcached.md."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from puna import kvcached
from puna.kvcached.service import kvcached_pb2
from tests.kvcached.test_documentation import example

pytestmark = pytest.mark.native

PROTO = kvcached.proto_path()


def compile_proto(*options: str) -> None:
    assert protoc.main(["protoc", f"-I{PROTO.parent}", *options, PROTO.name]) == 0


def test_messages_of_the_service_are_those_of_the_file(tmp_path):
    compile_proto(f"--descriptor_set_out={tmp_path / 'set'}")
    (expected,) = FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    for message in expected.message_type:
        for field in message.field:
            field.ClearField("json_name")
    present = FileDescriptorProto()
    kvcached_pb2.DESCRIPTOR.CopyToProto(present)
    hint = "run the command at the top of kvcached.proto"
    assert present == expected, hint


def test_client_of_the_documentation(served, tmp_path):
    compile_proto(f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}")
    program = example("python", 1).replace("/tmp/kvcached.sock", str(served.path))
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout) == (0, f"{64 << 20}\n"), done.stderr
    assert served.budget.leased == 0
