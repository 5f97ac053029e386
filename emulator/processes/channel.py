"""Messages with tensors between a caller's process and its companion: heap tensors by place, others through shared memory."""

import io
import mmap
import os
import pickle
import socket
import struct
from typing import Any

import torch

from ..errors import EmulatorError
from ..heap import ALIGNMENT, Heaps

_HEADER = struct.Struct("<QQ")  # bytes of the pickle, bytes of tensors in the file that comes with it


class Channel:
    """One end of a connection; both ends map the same heaps.

    A tensor in a symmetric heap, or a view of one, arrives as the same bytes seen through the other process's mapping, so that
    writes are seen by both. Any other CPU tensor arrives as a contiguous copy.
    """

    def __init__(self, sock: socket.socket, heaps: Heaps):
        self.socket, self.heaps = sock, heaps
        self._bytes = [torch.frombuffer(heaps.bytes_of(rank), dtype=torch.uint8) for rank in range(heaps.ranks)]

    def pack(self, *message: Any) -> tuple[bytes, "_Packer"]:
        """A message ready to be posted. Raises `EmulatorError` for what cannot be sent."""
        buffer = io.BytesIO()
        packer = _Packer(buffer, self.heaps)
        try:
            packer.dump(message)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise EmulatorError(
                f"cannot be sent between processes: {error}; allowed: picklable values and CPU tensors"
            ) from None
        return buffer.getvalue(), packer

    def post(self, packed: tuple[bytes, "_Packer"]) -> None:
        """Send what `pack` made. Raises `OSError` if the other end is gone."""
        payload, packer = packed
        fds = [_file_of(packer.tensors, packer.size)] if packer.size else []
        try:
            socket.send_fds(self.socket, [_HEADER.pack(len(payload), packer.size)], fds)
            self.socket.sendall(payload)
        finally:
            for fd in fds:
                os.close(fd)

    def send(self, *message: Any) -> None:
        """`pack` and `post`."""
        self.post(self.pack(*message))

    def receive(self) -> tuple:
        """The next message. Raises `EOFError` if the other end is gone."""
        header, fds, _, _ = socket.recv_fds(self.socket, _HEADER.size, 1)
        try:
            if not header:
                raise EOFError
            length, size = _HEADER.unpack(header + self._exactly(_HEADER.size - len(header)))
            shared = mmap.mmap(fds[0], size) if size else None
        finally:
            for fd in fds:
                os.close(fd)
        return _Unpacker(io.BytesIO(self._exactly(length)), self._bytes, shared).load()

    def _exactly(self, n: int) -> bytes:
        parts = []
        while n:
            part = self.socket.recv(min(n, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()


def _file_of(tensors: list[tuple[int, torch.Tensor]], size: int) -> int:
    fd = os.memfd_create("tensors", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    shared = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)
    for position, tensor in tensors:
        shared[position : position + tensor.nbytes].copy_(tensor.reshape(-1).view(torch.uint8))
    return fd


class _Packer(pickle.Pickler):
    """`tensors` are those to be copied, with their positions in a file of `size` bytes."""

    def __init__(self, file: io.BytesIO, heaps: Heaps):
        super().__init__(file)
        self.heaps = heaps
        self.tensors: list[tuple[int, torch.Tensor]] = []
        self.size = 0

    def persistent_id(self, value: Any) -> tuple | None:
        if not isinstance(value, torch.Tensor):
            return None
        tensor = value.detach()
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise TypeError(f"a {tensor.layout} tensor on {tensor.device}")
        for rank, base in enumerate(self.heaps.bases):
            offset = tensor.data_ptr() - base
            if 0 <= offset < self.heaps.nbytes and tensor.numel():
                return "heap", rank, offset, tuple(tensor.shape), tensor.stride(), tensor.dtype
        tensor = tensor.contiguous()
        position = -(-self.size // ALIGNMENT) * ALIGNMENT
        if tensor.numel():
            self.tensors.append((position, tensor))
            self.size = position + tensor.nbytes
        return "copy", position, tensor.numel(), tuple(tensor.shape), tensor.dtype


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, heaps: list[torch.Tensor], shared: mmap.mmap | None):
        super().__init__(file)
        self.heaps, self.shared = heaps, shared

    def persistent_load(self, place: tuple) -> torch.Tensor:
        if place[0] == "heap":
            _, rank, offset, shape, stride, dtype = place
            last = (
                offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) * dtype.itemsize + dtype.itemsize
            )
            return self.heaps[rank][offset:last].view(dtype).as_strided(shape, stride)
        _, position, count, shape, dtype = place
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.shared, dtype=dtype, count=count, offset=position).view(shape)
