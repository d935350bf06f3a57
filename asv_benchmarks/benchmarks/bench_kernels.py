"""What the compiler makes of each kernel, and in what time; no GPU is needed.

Registers, spills and shared memory are the same on every machine with one version of NVRTC.
"""

import time

from rpukit import _device
from rpukit._kernels import compile as compiler
from rpukit._kernels import source
from rpukit.errors import DeviceError


class Usage:
    params = (source.names(), ["sm_80", "sm_90a", "sm_100a", "sm_120"])
    param_names = ["kernel", "arch"]

    def setup(self, kernel, arch):
        try:
            _device.nvrtc()
        except DeviceError as error:
            raise NotImplementedError("no NVRTC") from error
        text, begin = source.load(kernel), time.process_time()
        self.usage = compiler.build(text, arch, {}).usage[kernel]
        self.seconds = time.process_time() - begin

    def track_registers(self, kernel, arch):
        return self.usage.registers

    track_registers.unit = "registers"

    def track_spills(self, kernel, arch):
        return self.usage.spill_bytes

    track_spills.unit = "bytes"

    def track_shared_memory(self, kernel, arch):
        return self.usage.shared_bytes

    track_shared_memory.unit = "bytes"

    def track_compile_seconds(self, kernel, arch):
        return self.seconds

    track_compile_seconds.unit = "seconds"


class Import:
    """The cost of `import rpukit`, in a fresh interpreter."""

    def timeraw_import(self):
        return "import rpukit"
