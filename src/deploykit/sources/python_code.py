"""`path/to/file.py:factory` and `package.module:factory`: the user's own code, run as they would run it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from deploykit.base import files
from deploykit.base.errors import UnknownNameError, UsageError
from deploykit.base.loaded import LoadedModel
from deploykit.base.tensors import DTYPES, TensorSpec
from deploykit.sources.modules import Origin, build_module, import_torch, loaded_module
from deploykit.sources.request import Request

if TYPE_CHECKING:
    import torch

EXAMPLE_FUNCTION = "example_inputs"
"""A function of this name beside the factory gives the inputs where `--input` does not."""

T = TypeVar("T")


def load_file(request: Request) -> LoadedModel:
    """Build what a function of a Python file returns.

    Raises:
        UsageError: The file or the factory is not there, fails, or returns no module.
    """
    path_text, _, factory = request.target.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise UsageError(f"{request.reference}: there is no file {path}")
    import_torch("a model of your own")
    with _importable(path.resolve().parent):
        module = _guarded(request, lambda: _import_file(path))
        return _load(request, module, factory, f"{path.stem}-{factory}", "python-file")


def load_module(request: Request) -> LoadedModel:
    """Build what a function of an importable module returns.

    Raises:
        UsageError: As `load_file`.
    """
    name, _, factory = request.target.rpartition(":")
    import_torch("a model of your own")
    with _importable(Path.cwd()):
        if _spec_of(name) is None:
            raise UsageError(f"{request.reference}: there is no Python module {name!r} here or in the environment")
        module = _guarded(request, lambda: importlib.import_module(name))
        return _load(request, module, factory, f"{name.rpartition('.')[2]}-{factory}", "python-module")


def _load(request: Request, module: ModuleType, factory: str, name: str, source: str) -> LoadedModel:
    make = _factory(module, factory)
    net = build_module(request, lambda: _made(request, make), lambda: _made(request, make))
    inputs = () if request.inputs else _guarded(request, lambda: _example_specs(module, net))
    return loaded_module(
        request, net, Origin(name=name, source=source, inputs=inputs, code=_code_digest(module, factory))
    )


def _made(request: Request, make: Any) -> torch.nn.Module:
    import torch

    made = make if isinstance(make, torch.nn.Module) else _guarded(request, make)
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{request.reference} returns one {type(made).__name__}; it must return a torch.nn.Module")
    return made


def _factory(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise UnknownNameError(f"function of {module.__file__}", name, known)
    return getattr(module, name)


def _import_file(path: Path) -> ModuleType:
    resolved = path.resolve()
    # A name of its own: two files called model.py are two modules.
    name = f"deploykit_model_{hashlib.sha256(str(resolved).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch.export and dataclasses look classes up by their module.
    spec.loader.exec_module(module)
    return module


def _guarded(request: Request, action: Callable[[], T]) -> T:
    """Run the user's code; what it raises becomes one paragraph with the line, what it prints goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return action()
    except UsageError:
        raise
    except Exception as error:
        # The user's code may raise anything, a SyntaxError too.
        raise UsageError(f"{request.reference} fails with {type(error).__name__}: {error}{_where(error)}") from error


def _where(error: Exception) -> str:
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__ and "importlib" not in f.filename
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _example_specs(module: ModuleType, net: torch.nn.Module) -> tuple[TensorSpec, ...]:
    """Names from `forward`, types and shapes from `example_inputs()`; a first dimension that all share is the batch."""
    make = getattr(module, EXAMPLE_FUNCTION, None)
    if make is None:
        return ()
    examples = make()
    named = (
        examples.items()
        if isinstance(examples, dict)
        else zip(_argument_names(net), _as_sequence(examples), strict=False)
    )
    tensors = [(name, value) for name, value in named if hasattr(value, "shape")]
    first = {tuple(value.shape)[:1] for _, value in tensors}
    shared = len(first) == 1 and first != {()}
    return tuple(_spec(name, value, shared) for name, value in tensors)


def _spec(name: str, value: Any, batched: bool) -> TensorSpec:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UsageError(f"{EXAMPLE_FUNCTION}() gives {name!r} as {dtype}; known are {', '.join(DTYPES)}")
    shape = tuple(int(size) for size in value.shape)
    return TensorSpec(name=name, dtype=dtype, shape=("batch", *shape[1:]) if batched else shape)


def _argument_names(net: torch.nn.Module) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(net.forward).parameters.values() if p.kind in kinds]


def _as_sequence(examples: Any) -> Sequence[Any]:
    return examples if isinstance(examples, (tuple, list)) else (examples,)


def _code_digest(module: ModuleType, factory: str) -> str:
    """Digest over the factory's file and every module that was loaded from beside it."""
    own = Path(str(module.__file__)).resolve()
    package = module.__name__.partition(".")[0]
    paths = {own} | {
        Path(other.__file__).resolve()
        for name, other in list(sys.modules.items())
        if isinstance(getattr(other, "__file__", None), str) and other.__file__
        and (name.partition(".")[0] == package or _stands_beside(Path(other.__file__), own))
    }  # fmt: skip
    digests = sorted(files.sha256_file(path) for path in paths if path.suffix == ".py" and path.is_file())
    return files.sha256_json({"factory": factory, "files": digests})


def _stands_beside(path: Path, own: Path) -> bool:
    # An environment inside the project's folder is not the user's code.
    return path.is_relative_to(own.parent) and "site-packages" not in path.parts


def _spec_of(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return None


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let code import what stands in a folder, as `python file.py` would."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
