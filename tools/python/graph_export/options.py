# tools/python/graph_export/options.py -- the options of the command line, checked before a model is loaded.
# SPDX-License-Identifier: Apache-2.0
import ast
import difflib
import math
import os
import re

from .refusal import MACHINE, stop

# Limits of a graph (docs/plan_format.md).
MOST_RANK, MOST_ELEMENTS, MOST_AXES, MOST_DEVICES = 8, 1 << 40, 3, 1 << 20


def did_you_mean(word, known):
    """"; did you mean WORD?" with the known word that begins with `word` or is nearest to it, or ""."""
    begun = sorted((name for name in known if len(word) > 1 and name.lower().startswith(word.lower())), key=len)
    near = begun or difflib.get_close_matches(word, known, 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def unknown_word(word, options):
    """What is wrong with a word of the command line that is no option and has no place."""
    name = word.partition("=")[0]
    if not word.startswith("-"):
        return f"'{word}' is one word too many"
    return f"there is no option {name}{did_you_mean(name, options)}"


def named(texts, what):
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            stop(f"{what} {text}: NAME=VALUE is wanted")
        if name in values:
            stop(f"{what} {text}: {name} is given twice; give each name once")
        values[name] = value
    return values


def literals(texts, what):
    """Python's literals by name; a value that is no literal stays a text."""
    values = named(texts, what)
    for name, value in values.items():
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return values


def sizes_of(text, most_sizes, most_product):
    """[8, 1024] for "8x1024"; None if the text is no list of sizes or the sizes are too large."""
    if not re.fullmatch("[0-9]{1,13}(x[0-9]{1,13})*", text, re.ASCII):
        return None
    sizes = [int(size) for size in text.split("x")]
    return sizes if len(sizes) <= most_sizes and 1 <= math.prod(sizes) <= most_product else None


def shapes_of(inputs):
    shapes = {}
    for name, text in inputs.items():
        shape = text.partition(":")[0]
        shapes[name] = sizes_of(shape, MOST_RANK, MOST_ELEMENTS)
        if not name.isidentifier():
            stop(f"--input {name}={text}: {name} is no name of an argument; give one of the forward pass")
        if shapes[name] is None:
            stop(
                f"--input {name}={text}: {shape or 'nothing'} is no shape; 1 to {MOST_RANK} sizes from 1 are wanted with x between "
                "them, at most 2^40 elements in all, then : and a dtype of torch, as in 8x1024:int64; numbers and texts are "
                f"given by --value {name}=..."
            )
    return shapes


def mesh_of(text):
    mesh = sizes_of(text, MOST_AXES, MOST_DEVICES)
    if mesh is None:
        stop(
            f"--mesh {text}: 1 to {MOST_AXES} sizes from 1 are wanted with x between them, as in 2x4, and at most "
            f"{MOST_DEVICES} devices in all"
        )
    return mesh


def tensor_of(torch, name, text, shape):
    dtype = getattr(torch, text.partition(":")[2] or "float32", None)
    if not isinstance(dtype, torch.dtype):
        given = text.partition(":")[2]
        known = [known for known in dir(torch) if isinstance(getattr(torch, known), torch.dtype)]
        stop(
            f"--input {name}={text}: {given} is no dtype of torch; float32, bfloat16, int64 are some"
            f"{did_you_mean(given, known)}"
        )
    return torch.empty(shape, dtype=dtype, device="meta")


def check_can_write(path):
    """Before a model is loaded, which may take long."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        stop(f"--output {path}: is a folder; give the path of a file")
    if not os.path.isdir(folder):
        stop(f"--output {path}: there is no folder {folder}; make it, or give another path")
    if os.path.islink(path) and not os.path.exists(path):
        stop(f"--output {path}: is a symbolic link to nothing; remove it, or give another path")
    if not (os.access(path, os.W_OK) if os.path.exists(path) else os.access(folder, os.W_OK | os.X_OK)):
        refuse_output(path, "no permission")


def refuse_output(path, why):
    stop(
        f"--output {path}: cannot be written: {why}; check the folder, its permissions and the free space, or name "
        "another file",
        MACHINE,
    )
