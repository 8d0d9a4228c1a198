# tools/python/graph_export/trace.py -- traces a call as a graph of torch.fx, by torch.export or by torch.fx itself.
# SPDX-License-Identifier: Apache-2.0
#
# torch.export runs the forward pass and keeps the operators that reach PyTorch's dispatcher, without side effects. It
# keeps them undecomposed: linear, attention, norms and recurrent layers are one operator each. torch.fx follows the
# Python code and keeps each module of torch.nn.
import dataclasses
import logging
import operator
import warnings

from .refusal import cause, note, quiet, reason, stop

PREFIX = "model."  # prefix of names within the call (model.call_of)


@dataclasses.dataclass
class Traced:
    nodes: list
    values: dict  # results by node; tensors are on "meta"
    held: dict  # names in the model by node, for parameters and buffers; None for a constant
    modules: dict  # called modules by target
    outputs: list  # nodes that the output node reads
    tracer: str


def by_export(torch, call, tensors):
    logging.disable(logging.CRITICAL)
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(call, (), dict(tensors), strict=False).run_decompositions({})
    kinds = torch.export.graph_signature.InputKind
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs if hasattr(spec.arg, "name")}
    held = {}
    for node in program.graph.nodes:
        spec = specs.get(node.name) if node.op == "placeholder" else None
        if spec is not None and spec.kind in (kinds.PARAMETER, kinds.BUFFER, kinds.CONSTANT_TENSOR):
            held[node] = spec.target if spec.kind == kinds.CONSTANT_TENSOR else spec.target.removeprefix(PREFIX)
    last = next(node for node in program.graph.nodes if node.op == "output")
    results = zip(program.graph_signature.output_specs, last.args[0])
    outputs = [node for spec, node in results if spec.kind == torch.export.graph_signature.OutputKind.USER_OUTPUT]
    values = {node: node.meta.get("val") for node in program.graph.nodes}
    # A member is taken from the result itself, so that it is found by its identity.
    for node in program.graph.nodes:
        if node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
    return Traced(list(program.graph.nodes), values, held, {}, outputs, "torch.export")


def split_linears(torch, traced):
    """Replaces each linear module by its weight, bias, product and sum."""
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op != "call_module" or not isinstance(modules[node.target], torch.nn.Linear):
            continue
        with traced.graph.inserting_before(node):
            bias = traced.graph.get_attr(node.target + ".bias") if modules[node.target].bias is not None else None
            weight = traced.graph.get_attr(node.target + ".weight")
            result = traced.graph.call_function(torch._C._nn.linear, (node.args[0], weight))
            if bias is not None:
                result = traced.graph.call_function(operator.add, (result, bias))
        node.replace_all_uses_with(result)
        traced.graph.erase_node(node)
    traced.recompile()


def by_fx(torch, call, tensors):
    values = {}

    class Shapes(torch.fx.Interpreter):
        def run_node(self, n):
            values[n] = super().run_node(n)
            return values[n]

    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.fx.symbolic_trace(call)
        split_linears(torch, traced)
        Shapes(traced, garbage_collect_values=False).run(*tensors.values())
    nodes = list(traced.graph.nodes)
    held = {node: node.target.removeprefix(PREFIX) for node in nodes if node.op == "get_attr"}
    last = nodes[-1]
    return Traced(nodes, values, held, dict(traced.named_modules()), last.all_input_nodes, "torch.fx")


def trace(torch, factory, call, tensors, tracer):
    """Traces with the requested tracer. The default is torch.export, or torch.fx if torch.export fails."""
    if tracer == "fx":
        try:
            return by_fx(torch, call, tensors)
        except Exception as error:  # the model's code may raise anything  # pylint: disable=broad-except
            stop(f"{factory}: {cause(error.__cause__ or error, 'torch.fx')}")
    try:
        return by_export(torch, call, tensors)
    except Exception as error:  # pylint: disable=broad-except
        why = error
    if tracer is None:
        try:
            traced = by_fx(torch, call, tensors)
            note(f"traced by torch.fx, as torch.export cannot: {reason(why)}")
            return traced
        except Exception:  # the first reason counts  # pylint: disable=broad-except
            pass
    stop(f"{factory}: {cause(why, 'torch.export')}")
    return None
