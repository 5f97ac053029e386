"""Triton's language, patched for interpretation once a process instead of at every launch and every device function call.

The stock interpreter patches `triton.language` around each launch (0.4 ms) and again at each device function call (0.2 ms), and knows
only the builtins of `tl`. Here also builtins that a kernel imported by name, and those of other modules that it
uses (libdevice, NVSHMEM wrappers), are patched, when the function that uses them is first interpreted.
"""

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.language import target_info
from triton.runtime import interpreter as stock

_scope: Any = None
_scanned: set[int] = set()


def _index(self: tl.tensor) -> int:
    # numpy >= 2.4 refuses int() of an array with one element in one dimension (triton 3.6's way).
    return int(self.handle.data.reshape(-1)[0])


def _no_target() -> None:
    return None


_no_target.__triton_builtin__ = True


def _bound(member: Callable) -> Callable:
    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        return member(*args, _semantic=stock.interpreter_semantic, **kwargs)

    call.__wrapped__ = member
    call.__name__ = member.__name__
    return call


def _is_language(value: Any) -> bool:
    """A builtin that wants the interpreter's semantics (`target_info.current_target` is one that does not)."""
    return (
        inspect.isfunction(value) and tl.core.is_builtin(value) and "_semantic" in inspect.signature(value).parameters
    )


def _scan(namespace: dict[str, Any]) -> None:
    """Bind the builtins that a function's module names itself, and those of the modules that it refers to."""
    if id(namespace) in _scanned:
        return
    _scanned.add(id(namespace))
    for name, value in list(namespace.items()):
        if _is_language(value):
            namespace[name] = _bound(value)
        elif inspect.ismodule(value) and value not in (tl, tl.core, tl.math) and "triton" in value.__name__:
            for key, member in inspect.getmembers(value, _is_language):
                setattr(value, key, _bound(member))


def _memoise_types() -> None:
    """Block types and tensors' shapes are made anew, from text and lists, several times an operation: a third of its time."""
    core = tl.core
    make_block, make_tensor = tl.block_type.__init__, tl.tensor.__init__
    blocks: dict[tuple, dict[str, Any]] = {}
    shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def block_init(self: tl.block_type, element_ty: tl.dtype, shape: Any) -> None:
        values = shape.values if type(shape) is core.tuple else shape
        space = element_ty.address_space if isinstance(element_ty, tl.pointer_type) else -1
        key = (element_ty.name, space, *[s.value if type(s) is tl.constexpr else s for s in values])
        known = blocks.get(key)
        if known is None:
            make_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        else:
            vars(self).update(known)

    def tensor_init(self: tl.tensor, handle: Any, type: tl.dtype) -> None:
        key = tuple(type.shape) if type.is_block() else ()
        known = shapes.get(key)
        if known is None:
            make_tensor(self, handle, type)
            shapes[key] = (self.shape, self.numel)
        else:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = known

    tl.block_type.__init__, tl.tensor.__init__ = block_init, tensor_init


def install() -> None:
    """Patch for good. Call once, in a process that interprets all its kernels."""
    global _scope
    if _scope is not None:
        return
    _memoise_types()
    # No target: kernels that ask take their portable branch, whatever hardware this machine has (and looking is slow).
    target_info.current_target = _no_target
    everything = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    _scope = stock._patch_lang(everything)
    tl.tensor.__index__ = _index
    patch_tensor = stock._patch_lang_tensor

    def patch_tensor_again(tensor: type, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", _index)

    stock._patch_lang_tensor = patch_tensor_again  # a stock launch (`kernel[grid](...)`) patches anew
    rewrite = stock.InterpretedFunction.rewrite

    def rewrite_and_scan(self: Any) -> Callable:
        function = rewrite(self)
        _scan(self.fn.__globals__)
        return function

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return rewrite_cached(self)(*args, **kwargs)

    cache: dict[Any, Callable] = {}

    def rewrite_cached(self: Any) -> Callable:
        known = cache.get(self.fn)
        if known is None:
            known = cache[self.fn] = rewrite_and_scan(self)
        return known

    stock.InterpretedFunction.rewrite = rewrite_cached
    stock.InterpretedFunction.__call__ = call
    # tl's own device functions (tl.sum, tl.cdiv, ...) find what they use in this module's namespace.
    _scan(vars(sys.modules["triton.language.standard"]))
