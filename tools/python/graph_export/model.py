# tools/python/graph_export/model.py -- the module that a function returns, without weights, and the call to trace.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import enum
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, MappingView, Sequence, Set

from .options import did_you_mean
from .refusal import Refused, missing_package, own_fault, place_of, quiet, reason, stop

# Parts of a result that hold no tensors.
PLAIN = (type(None), str, bytes, bytearray, int, float, complex, type, range, slice, enum.Enum, type(...))
WANTED = "return tensors, tuples, lists, dictionaries or dataclasses of them"


def load_factory(factory):
    module, _, function = factory.partition(":")
    if not module or not function:
        stop(f"{factory}: MODULE:FUNCTION is wanted, as in torchvision.models:resnet50")
    sys.path.insert(0, os.getcwd())
    try:
        with quiet():
            make = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        why = (
            missing_package(error)
            if error.name and error.name != module
            else reason(error) + "; give one of this folder or an installed one"
        )
        stop(f"{factory}: module {module} cannot be imported: {why}")
    except (Exception, SystemExit) as error:  # the module's own code may raise anything  # pylint: disable=broad-except
        is_own = place_of(error) or isinstance(error, SyntaxError)
        step = "correct the module there" if is_own else "give one of this folder or an installed one"
        stop(f"{factory}: module {module} cannot be imported{place_of(error)}: {reason(error)}; {step}")
    if not callable(make):
        known = [name for name, value in vars(sys.modules[module]).items() if callable(value)]
        stop(
            f"{factory}: module {module} has no function {function}; give one that returns the nn.Module"
            f"{did_you_mean(function, known)}"
        )
    return make


@contextlib.contextmanager
def meta_parameters(torch):
    """Moves each parameter to "meta" as it is registered, for code that needs values of other tensors meanwhile."""
    register = torch.nn.Module.register_parameter

    def register_meta(module, name, parameter):
        if parameter is not None and not parameter.is_meta:
            parameter = torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_meta
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def move_buffers(torch, model):
    if isinstance(model, torch.nn.Module):
        for module in model.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.to("meta")
    return model


def make_model(torch, make, values):
    """Makes the model on the "meta" device, or only its parameters if the function needs values of other tensors."""
    try:
        with quiet(), torch.device("meta"):
            return make(**values)
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):
            raise
    with quiet(), meta_parameters(torch):
        return move_buffers(torch, make(**values))


def load_model(torch, factory, values):
    make = load_factory(factory)
    try:
        model = make_model(torch, make, values)
    except ImportError as error:
        stop(f"{factory}: no model comes of it: {missing_package(error)}")
    except (Exception, SystemExit) as error:  # pylint: disable=broad-except
        of_arguments = "check the arguments that --arg gives it" if values else "give its arguments with --arg NAME=VALUE"
        step = own_fault(error) or of_arguments
        stop(f"{factory}: no model comes of it{place_of(error)}: {reason(error)}; {step}")
    if not isinstance(model, torch.nn.Module):
        stop(f"{factory}: gives {type(model).__name__}, an nn.Module is wanted")
    for name, parameter in model.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            stop(
                f"{factory}: parameter {name} has no size before the first call; give its module the size, not a lazy one"
            )
    return model


def is_leaf(torch, value):
    return isinstance(value, (torch.Tensor, torch.fx.Proxy))


def holds_none(torch, value):
    if isinstance(value, (*PLAIN, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    package = type(value).__module__.partition(".")[0]  # a dtype, a device, an array
    return package in ("torch", "numpy") and not isinstance(value, tuple) and not hasattr(value, "__dict__")


def tensors_of(torch, value):
    """The tensors of a result, each once: tuples, lists, dictionaries, dataclasses and objects of any depth, in their
    order. Errors: Refused where a part may hold tensors that cannot be found."""
    found, seen = [], {}  # `seen` keeps the parts, so that no later part gets the id of an earlier one

    def visit(part):
        if id(part) in seen:
            return
        seen[id(part)] = part
        if is_leaf(torch, part):
            found.append(part)
        elif not holds_none(torch, part):
            for member in members_of(part):
                visit(member)

    visit(value)
    return found


def has_slots(kind):
    names = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    return any({*([name] if isinstance(name, str) else name)} - {"__dict__", "__weakref__"} for name in names)


def members_of(value):
    """Members of an object, and attributes that a container has besides."""
    attributes = list(getattr(value, "__dict__", {}).values())
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)] + attributes
    if isinstance(value, Iterator) or has_slots(type(value)):
        refuse(value)
    if isinstance(value, Mapping):
        return [*value.values(), *attributes]
    if isinstance(value, (Sequence, Set, MappingView)):
        return [*value, *attributes]
    if callable(value) or not hasattr(value, "__dict__"):
        refuse(value)
    return attributes


def refuse(value):
    raise Refused(f"a result has a {type(value).__name__}, in which tensors cannot be looked for; {WANTED}")


def check_arguments(factory, model, inputs, values):
    """Checks that the forward pass takes the given arguments. Returns the names of arguments to pass by position."""
    kinds = inspect.Parameter
    parameters = inspect.signature(model.forward).parameters.values()
    names = {
        p.name: p
        for p in parameters
        if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    }
    takes_more = {p.kind for p in parameters}
    given = [*inputs, *values]
    twice = [name for name in inputs if name in values]
    if twice:
        stop(f"{twice[0]} is given by --input and by --value; give each argument once")
    needed = [name for name, p in names.items() if p.default is kinds.empty]
    unknown = [name for name in given if name not in names]
    if (
        unknown
        and kinds.VAR_KEYWORD not in takes_more
        and kinds.VAR_POSITIONAL not in takes_more
        or any(n not in given for n in needed)
    ):
        optional = [name + " (optional)" if name not in needed else name for name in names]
        missing = [name for name in needed if name not in given]
        stop(
            f"{factory}: the model takes {', '.join(optional) or 'nothing'}; --input gives {', '.join(given) or 'nothing'}"
            + (
                f"; {missing[0]} is missing: --input {missing[0]}=SIZES[:DTYPE]"
                if missing
                else f"; {unknown[0]} is none of them{did_you_mean(unknown[0], list(names))}"
            )
        )
    by_place = [name for name, p in names.items() if p.kind == kinds.POSITIONAL_ONLY and name in given]
    return by_place + ([] if kinds.VAR_KEYWORD in takes_more else unknown)


def call_of(torch, model, inputs, values, by_place):
    """A module whose forward pass takes only the inputs, by name, and returns the tensors of the model's result."""

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def run(self, tensors):
            arguments = {**tensors, **values}
            result = self.model(
                *[arguments[name] for name in by_place],
                **{name: value for name, value in arguments.items() if name not in by_place},
            )
            found = tuple(tensors_of(torch, result))
            if not found:
                raise Refused(f"the model gives {type(result).__name__}, in which no tensor is found; {WANTED}")
            return found

    scope = {}
    pairs = ", ".join(f"{name!r}: {name}" for name in inputs)
    # Tracers name the inputs by the signature.
    exec(
        f"def forward(self, {', '.join(inputs)}):\n    return self.run({{{pairs}}})", scope
    )  # pylint: disable=exec-used
    Call.forward = scope["forward"]
    return Call()
