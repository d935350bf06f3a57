"""What the compiler makes of each kernel: the same on every machine, and no GPU is needed."""

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
        self.usage = compiler.build(source.load(kernel), arch, {}).usage[kernel]

    def track_registers(self, kernel, arch):
        return self.usage.registers

    track_registers.unit = "registers"

    def track_spills(self, kernel, arch):
        return self.usage.spill_bytes

    track_spills.unit = "bytes"

    def track_shared_memory(self, kernel, arch):
        return self.usage.shared_bytes

    track_shared_memory.unit = "bytes"


class Import:
    """The cost of `import rpukit`, in a fresh interpreter."""

    def timeraw_import(self):
        return "import rpukit"
