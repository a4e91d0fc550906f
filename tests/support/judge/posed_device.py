"""Lets the CPU build of vLLM run as if on one H100: its own code chooses attention backends, block
sizes and steps for that device. There are no kernels: one that is called raises.

Imported before vllm, in vLLM's own environment, by scripts that build models on the meta device.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import torch
import torchvision_operators  # noqa: F401

_EXTENSIONS = (
    *("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch"),
    *("vllm._flashmla_C", "vllm._flashmla_extension_C", "vllm._flashkda_C"),
    *("vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C"),
    "vllm.third_party.flashmla.flash_mla_interface",
)
_PACKAGES = ["deep_gemm", "cutlass"]
_NAMESPACES = ("_C", "_moe_C", "_C_cache_ops", "_C_custom_ar", "_flashmla_C", "_flashkda_C")
_VALUES = (torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.__float__, torch.Tensor.cpu)
_COUNT, _CAPABILITY, _MEMORY, _MULTIPROCESSORS = 8, (9, 0), 80 << 30, 132


class _Extension(types.ModuleType):
    """A compiled extension of which every name is a kernel."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        is_library = self.__name__.partition(".")[0] in _PACKAGES
        return _decorator(name) if is_library else _kernel(name)


class _Overloads(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


def more_extensions(package: str) -> None:
    """Whatever is imported from within `package` from now on."""
    _PACKAGES.append(package)


def _kernel(name: str) -> type:
    """A class, since some signatures name kernels' types."""

    def fail(cls: type, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"there is no kernel {name} here")

    return _Overloads(name, (), {"__new__": fail})


def _decorator(name: str) -> type:
    """Of a library in which kernels are written: its types and decorators are called at import."""
    return _Overloads(name, (), {"__new__": lambda cls, *args, **kwargs: cls})


class _Nothing:
    """A stream, or an event of one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class _Extensions(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the extensions, and whatever is imported from within them."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.startswith(_EXTENSIONS) or name.partition(".")[0] in _PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Extension(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _pose() -> None:
    import vllm.platforms as platforms

    platforms.vllm_version_matches_substr = lambda substr: False
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    answers = {
        "get_device_capability": DeviceCapability(*_CAPABILITY),
        "get_device_name": "NVIDIA H100 80GB HBM3",
        "get_device_total_memory": _MEMORY,
        "is_fully_connected": True,
        "device_count": _COUNT,
        "num_compute_units": _MULTIPROCESSORS,
        "is_integrated_gpu": False,
        "is_pin_memory_available": False,
        "get_cuda_runtime_major": 13,
    }
    body = {name: classmethod(_answer(value)) for name, value in answers.items()}
    platforms._current_platform = type("PosedPlatform", (CudaPlatformBase,), body)()
    torch.accelerator.empty_cache = lambda: None
    torch.cuda.current_device = torch.accelerator.current_device_index = lambda: 0
    torch.cuda.Stream = torch.cuda.Event = _Nothing
    torch.cuda.get_device_capability = lambda *_: _CAPABILITY


def _answer(value: Any) -> Any:
    return lambda *args, **kwargs: value


def _add_kernels() -> None:
    """After vllm._custom_ops, which asks what is registered."""
    from vllm import _custom_ops

    for name in dir(_custom_ops):
        if "supports" in name or "supported" in name:
            setattr(_custom_ops, name, _answer(True))
    namespace = torch._ops._OpNamespace
    known = namespace.__getattr__

    def operator(self: Any, name: str) -> Any:
        try:
            return known(self, name)
        except AttributeError:
            if name.startswith("__") or self.name not in _NAMESPACES:
                raise
            return _answer(0) if name == "get_workspace_size" else _kernel(name)

    namespace.__getattr__ = operator


class OnMeta(torch.overrides.TorchFunctionMode):
    """Tensors that are made on any device lie on the meta device, and hold zeros if asked."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _VALUES and args[0].is_meta:
            args = (torch.zeros(args[0].shape, dtype=args[0].dtype, device="cpu"), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


sys.meta_path.insert(0, _Extensions())
_pose()
_add_kernels()
