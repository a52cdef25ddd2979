"""The safetensors files that Longshot writes, read without its library."""
import ctypes
import json
import os
import struct


class Skip(Exception):
    """Why a measurement cannot be made."""


class SafeTensors:
    def __init__(self, path):
        self.path = path
        self.file = open(path, "rb")
        try:
            (length,) = struct.unpack("<Q", self.file.read(8))
            self.entries = json.loads(self.file.read(min(length, os.path.getsize(path))))
        except (struct.error, ValueError) as error:
            raise Skip(f"{path} is not a safetensors file ({error})")
        self.data = 8 + length

    def shape(self, name):
        if name not in self.entries:
            raise Skip(f"{self.path} has no tensor {name}")
        return self.entries[name]["shape"]

    def read(self, name, dtype, out):
        """Fills `out`, a contiguous tensor of PyTorch, without a copy in between."""
        if self.shape(name) != list(out.shape) or self.entries[name]["dtype"] != dtype:
            entry = self.entries[name]
            raise Skip(f"{self.path}: {name} is {entry['dtype']} {entry['shape']}, expected {dtype} {list(out.shape)}")
        self.file.seek(self.data + self.entries[name]["data_offsets"][0])
        memory = (ctypes.c_char * out.nbytes).from_address(out.data_ptr())
        if self.file.readinto(memory) != out.nbytes:
            raise Skip(f"{self.path} ends inside {name}")
