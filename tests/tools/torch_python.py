# tests/tools/torch_python.py -- a Python that can import PyTorch, for tests that need one.
# SPDX-License-Identifier: Apache-2.0
#
# SEQTILE_TORCH_PYTHON names the Python. The default is a virtual environment in the user's cache folder, which is made
# once. Its wheels are installed without their dependencies, which would be several GB for GPUs.
import fcntl
import os
import subprocess
import sys

PACKAGES = [
    "torch",
    "filelock",
    "fsspec",
    "Jinja2",
    "MarkupSafe",
    "mpmath",
    "networkx",
    "numpy",
    "sympy",
    "typing_extensions",
]
# Libraries that PyTorch's own libraries always name.
LIBRARIES = ["nvidia-cufile", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13", "nvidia-nvshmem-cu13"]
MOST_SECONDS = 600


def can_import(python):
    done = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=False)
    return done.returncode == 0


def install(folder):
    """The reason of a failure, or ""."""
    steps = [
        [sys.executable, "-m", "venv", folder],
        [
            folder + "/bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--retries",
            "1",
            "--timeout",
            "15",
            *PACKAGES,
            *LIBRARIES,
        ],
    ]
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return lines[-1] if lines else f"exit code {done.returncode}"
    return "" if can_import(folder + "/bin/python") else "what pip installs cannot be imported"


def python_with_torch():
    """The path of the Python and "", or None and a reason."""
    named = os.environ.get("SEQTILE_TORCH_PYTHON")
    if named:
        return (named, "") if can_import(named) else (None, f"SEQTILE_TORCH_PYTHON {named} cannot import torch")
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "seqtile-tests")
    folder, mark = cache + "/torch", cache + "/torch.no"
    try:
        os.makedirs(cache, exist_ok=True)
        with open(cache + "/lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if can_run(folder):
                return folder + "/bin/python", ""
            if os.path.exists(mark):  # an earlier try failed
                with open(mark, encoding="utf-8") as file:
                    return None, f"no PyTorch: {file.read().strip()} (remove {mark} to try again)"
            why = install(folder)
            if why:
                with open(mark, "w", encoding="utf-8") as file:
                    file.write(why)
                return None, f"no PyTorch, and it cannot be installed: {why}"
            return folder + "/bin/python", ""
    except OSError as error:
        return None, f"no PyTorch, and no place for it: {error}"


def can_run(folder):
    return os.path.exists(folder + "/bin/python") and can_import(folder + "/bin/python")


def folder_with_tvm_ffi(python):
    """A folder for PYTHONPATH that has the package apache-tvm-ffi for this Python, made once, and ""; or None and a
    reason."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "seqtile-tests")
    folder = os.path.join(cache, "tvm_ffi")
    command = [python, "-m", "pip", "install", "-q", "--no-deps", "--retries", "1", "--timeout", "15", "--target",
               folder + ".new", "apache-tvm-ffi==0.1.*"]
    try:
        os.makedirs(cache, exist_ok=True)
        with open(cache + "/tvm_ffi.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(folder):
                return folder, ""
            done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines()
                return None, f"no apache-tvm-ffi: {lines[-1] if lines else done.returncode}"
            os.rename(folder + ".new", folder)
            return folder, ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"no apache-tvm-ffi: {error}"
