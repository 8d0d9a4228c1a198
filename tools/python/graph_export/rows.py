# tools/python/graph_export/rows.py -- turns a trace into the nodes of docs/plan_format.md.
# SPDX-License-Identifier: Apache-2.0
#
# A parameter that several operators read, by whatever names, has one row of its own, so that it has one place in a
# plan. The parameters of the rows are compared with the model's before anything is written.
import collections
import operator

from .model import WANTED, tensors_of
from .refusal import note, place_of_text, stop
from .trace import PREFIX

# Operators so cheap that they take the layout of their first input.
MERGED_MODULES = {"ReLU", "Flatten"}
MERGED_TARGETS = {
    "flatten",
    "view",
    "_unsafe_view",
    "reshape",
    "permute",
    "transpose",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "getitem",
    "softmax",
    "type",
    "to",
    "_to_copy",
    "contiguous",
    "clone",
    "alias",
    "detach",
    "relu",
    "unsqueeze",
    "squeeze",
}
MEMBERS = (operator.getitem, getattr)  # functions that return a member of a result


class Rows:
    def __init__(self, torch, factory, traced, model):
        self.torch, self.factory, self.traced, self.model = torch, factory, traced, model
        self.owners = {}  # the first name of a parameter, by the parameter's identity
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self.owners.setdefault(id(parameter), name)
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        self.names, self.taken = {}, set()
        self.held_rows = {}  # the name of a row, by the parameter's owner name
        self.rows = []
        self.shared = self.read_by_several()

    # Parameters.

    def owner_of(self, name):
        """The owner name of a parameter, which is the first of its names; a buffer has one name."""
        return self.owners[id(self.parameters[name])] if name in self.parameters else name

    def module_parameters(self, node):
        """Owner names of a called module's parameters, by their names in the module."""
        path = path_of(node)
        return {
            name: self.owner_of(f"{path}.{name}" if path else name)
            for name, _ in self.traced.modules[node.target].named_parameters(remove_duplicate=False)
        }

    def read_by_several(self):
        """Owner names that more than one node reads; called modules count as readers."""
        readers = collections.Counter()
        for node in self.traced.nodes:
            if node.op == "call_module":
                readers.update(set(self.module_parameters(node).values()))
        for node, name in self.traced.held.items():
            readers[self.owner_of(name)] += 1
        return {owner for owner, count in readers.items() if count > 1}

    def hold(self, owner, value):
        """The row of a parameter or buffer; made before the row of its first reader."""
        if owner not in self.held_rows:
            parameter = self.parameters.get(owner)
            role = "buffer" if parameter is None else "parameter" if parameter.requires_grad else "frozen"
            self.held_rows[owner] = self.new_name(owner.replace(".", "_"))
            self.rows.append(
                {
                    "name": self.held_rows[owner],
                    "op": "get_attr",
                    "target": owner,
                    "role": role,
                    "inputs": [],
                    "out": self.type_of(value),
                    "merge": False,
                    "args": [],
                }
            )
        return self.held_rows[owner]

    # Values.

    def tensors(self, value):
        """The tensors that have elements; other tensors have no layout and cost nothing."""
        return [tensor for tensor in tensors_of(self.torch, value) if any_size(tensor)]

    def type_of(self, tensor):
        return {"shape": [int(size) for size in tensor.shape], "dtype": str(tensor.dtype)}

    def check_sizes(self, node, tensors):
        for tensor in tensors:
            if any(not isinstance(size, int) for size in tensor.shape):
                stop(
                    f"{self.factory}: the size of node {node.name}{place_of_text(node.meta.get('stack_trace'))} depends on values of "
                    "tensors; a plan needs sizes that are known: pad, or mask"
                )
            if len(tensor.shape) > 8:
                stop(f"{self.factory}: node {node.name} has {len(tensor.shape)} dimensions; at most 8 are planned")

    def new_name(self, wanted):
        name, count = wanted, 0
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name

    # Rows.

    def text_of(self, argument):
        """The texts of an argument. Each member of a list is an argument, and a node that is a number is given by its
        value."""
        if isinstance(argument, self.torch.fx.Node):
            if argument in self.names or argument in self.traced.held:
                return [self.row_of(argument)]
            return [str(self.traced.values.get(argument))]
        if isinstance(argument, (list, tuple)):
            return [text for member in argument for text in self.text_of(member)]
        if isinstance(argument, slice):
            parts = [self.text_of(part)[0] for part in (argument.start, argument.stop, argument.step)]
            return [f"slice({', '.join(parts)})"]
        return [str(argument)]

    def row_of(self, node):
        """The name of the row that a node reads; the row of a parameter is made here."""
        name = self.traced.held.get(node)
        if node in self.traced.held and self.tensors(self.traced.values[node]):
            return self.hold(self.owner_of(name), self.traced.values[node])
        return self.names.get(node)

    def arguments(self, node):
        texts = self.text_of(node.args)
        for name, value in node.kwargs.items():
            texts += [f"{name}={text}" for text in self.text_of(value)]
        return texts + [text for text in self.dims_of(node) if text not in texts]

    def dims_of(self, node):
        """The dimensions along which an operator works, as texts "dim=1": for cat, stack and the dispatcher's
        operators."""
        if node.target in (self.torch.cat, self.torch.stack):
            return [f"dim={node.args[1] if len(node.args) > 1 else node.kwargs.get('dim', 0)}"]
        if not isinstance(node.target, self.torch._ops.OpOverload):
            return []
        texts = []
        for place, argument in enumerate(node.target._schema.arguments):
            if argument.name in ("dim", "dims"):
                value = (
                    node.args[place]
                    if place < len(node.args)
                    else node.kwargs.get(argument.name, argument.default_value)
                )
                texts += [f"dim={text}" for text in self.text_of(value) if text != "None"]
        return texts

    def member_arguments(self, node, members):
        """The producer's name and the positions of the members that a node takes from a result, nested tuples counted
        flat. None for other nodes."""
        if (
            node.op == "call_module"
            or not node.all_input_nodes
            or node.target not in MEMBERS
            and node.op != "call_method"
        ):
            return None
        producer = node.all_input_nodes[0]
        value = self.traced.values.get(producer)
        if self.is_tensor(value) or producer not in self.names:
            return None
        all_members = [id(tensor) for tensor in self.tensors(value)]
        if any(id(tensor) not in all_members for tensor in members):
            return None
        return [self.names[producer], *(str(all_members.index(id(tensor))) for tensor in members)]

    def is_tensor(self, value):
        return isinstance(value, self.torch.Tensor)

    def add_operator(self, node):
        value = self.traced.values.get(node)
        tensors = self.tensors(value)
        self.check_sizes(node, tensors)
        if not tensors:
            self.check_nothing_is_lost(node)
            return
        inputs = (
            []
            if reads_no_value(node)
            else list(dict.fromkeys(row for row in map(self.row_of, node.all_input_nodes) if row))
        )
        members = self.member_arguments(node, tensors)
        row = {
            "name": None,
            "op": node.op,
            "target": "_operator.getitem" if members else target_of(node),
            "inputs": inputs,
            "out": self.type_of(value) if self.is_tensor(value) else [self.type_of(tensor) for tensor in tensors],
            "merge": False,
            "args": members or self.arguments(node),
        }
        if node.op == "call_module":
            self.describe_module(node, row)
        row["name"] = self.names[node] = self.new_name(
            node.name.removeprefix("model_") if self.traced.modules else node.name
        )
        name = row.get("module") or row["target"].rsplit(".", 1)[-1]
        row["merge"] = bool(row["inputs"]) and name in (MERGED_MODULES if "module" in row else MERGED_TARGETS)
        self.rows.append(row)

    def check_nothing_is_lost(self, node):
        if node.op == "call_module" and self.module_parameters(node):
            stop(
                f"{self.factory}: module {path_of(node)} gives {type(self.traced.values.get(node)).__name__}, in "
                f"which no tensor is found; {WANTED}"
            )

    def describe_module(self, node, row):
        module, owners = self.traced.modules[node.target], self.module_parameters(node)
        row.update(
            module=type(module).__name__, target=path_of(node) or type(module).__name__, repr=repr(module), params={}
        )
        if any(owner in self.shared for owner in owners.values()):  # shared parameters become inputs
            row["inputs"] += [self.hold(owner, self.parameters[owner]) for owner in owners.values()]
        else:
            row["params"] = {name: list(self.parameters[owner].shape) for name, owner in owners.items()}
            self.held_rows.update((owner, None) for owner in owners.values())

    def all_rows(self):
        for node in self.traced.nodes:
            if node in self.traced.held or node.op == "output":
                continue
            self.add_operator(node)
        if self.traced.tracer == "torch.export":
            self.hold_unread()
        inputs = list(dict.fromkeys(row for row in map(self.row_of, self.outputs()) if row))
        if not inputs:
            stop(f"{self.factory}: no result of the model is a tensor with elements; {WANTED}")
        self.rows.append(
            {
                "name": self.new_name("output"),
                "op": "output",
                "target": "output",
                "inputs": inputs,
                "out": None,
                "merge": False,
                "args": inputs,
            }
        )
        self.check_parameters()
        return self.rows

    def outputs(self):
        return [node for node in self.traced.outputs if isinstance(node, self.torch.fx.Node)]

    def hold_unread(self):
        """Adds the parameters without a reader, which need memory too. torch.export has them among its inputs."""
        unread = [
            node
            for node, name in self.traced.held.items()
            if name in self.parameters and self.owner_of(name) not in self.held_rows
        ]
        for node in unread:
            self.hold(self.owner_of(self.traced.held[node]), self.traced.values[node])
        if unread:
            note(f"{len(unread)} parameters are read by no operator, {self.traced.held[unread[0]]} the first of them")

    def check_parameters(self):
        """Checks that each of the model's parameters has a row, unless it has no elements."""
        missing = [
            owner
            for owner in dict.fromkeys(self.owners.values())
            if owner not in self.held_rows and self.parameters[owner].numel()
        ]
        if missing:
            module = missing[0].rpartition(".")[0] or type(self.model).__name__
            count = sum(self.parameters[owner].numel() for owner in missing)
            stop(
                f"{self.factory}: the graph lacks {count} parameters of the model, those of module {module} first ({missing[0]}): "
                f"{self.traced.tracer} finds no operator that reads them; leave that module out, or use --tracer export"
            )


def path_of(node):
    """The name of a called module within the model; "" for the model itself."""
    return node.target.removeprefix(PREFIX[:-1]).removeprefix(".")


def any_size(tensor):
    return all(not isinstance(size, int) or size > 0 for size in tensor.shape)


def reads_no_value(node):
    """True for operators that need only a shape and a type, such as zeros_like and new_ones."""
    name = target_of(node).rsplit(".", 1)[-1]
    return node.op != "call_module" and (name.endswith("_like") or name.startswith("new_"))


def target_of(node):
    """The name of an operator: "aten.add" for any overload, "_operator.add" for a function."""
    if isinstance(node.target, str):
        return node.target
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return schema.name.replace("::", ".")
    module = getattr(node.target, "__module__", "") or "torch"
    return f"{module}.{getattr(node.target, '__name__', type(node.target).__name__)}"
