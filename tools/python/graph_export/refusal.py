# tools/python/graph_export/refusal.py -- the error of an export: one line on standard error.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
import sys
import sysconfig
import traceback

BAD_INPUT, MACHINE = 2, 3

# Exceptions by which PyTorch says that Python code asks for the value of a tensor, or that a size is such a value.
VALUE_ERRORS = {"GuardOnDataDependentSymNode", "DataDependentOutputException", "TraceError"}
SIZE_ERRORS = {"DynamicOutputShapeException"}
VALUE_TEXTS = ("data-dependent", "cannot be called on meta tensors", "control flow", "_local_scalar_dense")


class Refused(Exception):
    """Why a model cannot be a graph, in words that need no others."""


def one_line(text):
    """Replaces control characters, which a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def stop(text, code=BAD_INPUT):
    print("export_graph: " + one_line(text), file=sys.stderr)
    sys.exit(code)


def note(text):
    print("export_graph: note: " + one_line(text), file=sys.stderr)


def reason(error):
    """The first line of an error from code that is not ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


@contextlib.contextmanager
def quiet():
    """Silences both standard streams, also for native code, because standard output belongs to the graph."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        for descriptor, old in zip((1, 2), kept):
            os.dup2(old, descriptor)
            os.close(old)
        os.close(nothing)


def is_models(path):
    """True if a file can be the model's: it is not PyTorch's, Python's or this program's."""
    torch = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or "/nowhere/torch")
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if path.startswith("<") or path.startswith((torch + os.sep, own + os.sep)):
        return False
    return "site-packages" in path or not path.startswith(sysconfig.get_paths()["stdlib"] + os.sep)


def place(path, line, code):
    """A place as text: at model.py:12, `if x.sum() > 0:`"""
    inside = (
        os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path.rsplit("site-packages" + os.sep, 1)[-1]
    )
    return f" at {inside}:{line}" + (f", `{code.strip()}`" if code else "")


def place_of(error):
    """The deepest line of the model's own code from which an error comes; "" if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_models(frame.filename)]
    return place(frames[-1].filename, frames[-1].lineno, frames[-1].line) if frames else ""


def place_of_text(trace):
    """As place_of(), from the text of a node's stack trace."""
    frames = [
        found
        for found in re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace or "")
        if is_models(found[0])
    ]
    return place(*frames[-1]) if frames else ""


def own_fault(error):
    """The next step after an error that the model's own code makes or raises; "" for an error from a library, which may
    come from the arguments of the call."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    if last is None or not is_models(last.filename) or "site-packages" in last.filename:
        return ""
    if re.search(r"\b(raise|assert)\b", last.line or ""):
        return "the model's own code refuses the call: that line says what it wants"
    is_mistake = isinstance(error, (ArithmeticError, AttributeError, LookupError, NameError, SyntaxError, TypeError))
    return "the model's own code is at fault: correct that line" if is_mistake and "NoneType" not in str(error) else ""


def cause(error, tracer):
    """The reason why a trace failed, its place, and the next step."""
    name, where = type(error).__name__, place_of(error)
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, ImportError):
        return missing_package(error) + where
    if name in SIZE_ERRORS:
        return f"a tensor's size depends on values{where}: {reason(error)}; a plan needs sizes that are known: pad, or mask"
    if name in VALUE_ERRORS or any(text in str(error) for text in VALUE_TEXTS):
        return (
            f"its control flow depends on values of tensors{where}: {reason(error)}; use torch.where there, or leave that "
            "path out by an argument (--value)"
        )
    if name == "FakeTensorDeviceMismatchError" or "on the same device" in str(error):
        return (
            f'a tensor is made on another device than the model\'s, "meta"{where}: {reason(error)}; make it with '
            "device=x.device, or register it as a buffer"
        )
    step = own_fault(error) or "check --input and --value against its forward pass"
    return f"{tracer} cannot trace it{where}: {reason(error)}; {step}"


def missing_package(error):
    package = (error.name or "").partition(".")[0]
    return (
        f"package {package} is missing: {reason(error)}; install it: pip install {package}"
        if package
        else (f"an import fails: {reason(error)}; install or repair that package")
    )
