#!/usr/bin/env python3
"""Writes tests/golden/models: the results of small models of the transformers package.

tests/models/golden_models_test.cpp reads them. Each case is a model file of one or two decoder layers of width 64. The
weights are not stored: `parameter()` makes them from their names, here and in the test. A golden file holds the hidden
states before and after each layer, those after the last norm, and the logits, of a prefill, an extension and decode
steps. The formulas are the package's, evaluated in float64: within `in_float64()` its float32 is float64. Positions go
beyond the original context (16) of scaled rope.

Run it with torch and transformers installed; their versions are written into each header:
    python tools/python/make_model_goldens.py [CASE ...]
"""
import contextlib
import inspect
import json
import os
import sys
import tempfile
from unittest import mock

import numpy as np
import torch
import transformers

FOLDER = os.path.join(os.path.dirname(__file__), "../../tests/golden/models")
CALLS = [12, 9, 1, 1, 1]  # tokens of a prefill, an extension and decode steps
TOKENS = sum(CALLS)
WINDOW = 8

BASE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 1, "vocab_size": 48, "max_position_embeddings": 64, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SHORT, LONG = [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]


def scaled(**scaling):
    return {"rope_scaling": {"original_max_position_embeddings": 16, **scaling}}


def gemma(**more):
    return {"head_dim": 16, "num_hidden_layers": 2, "sliding_window": WINDOW, "hidden_act": None,
            "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24, "tie_word_embeddings": True, **more}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"original_max_position_embeddings": 16, "num_key_value_heads": 4}

CASES = {
    "llama": ("llama", {}),
    "llama_biases": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    "llama_linear": ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama_dynamic": ("llama", {"rope_scaling": {"type": "dynamic", "factor": 4.0}, "max_position_embeddings": 16}),
    "llama_yarn": ("llama", scaled(rope_type="yarn", factor=4.0)),
    "llama_yarn_ramp": ("llama", scaled(rope_type="yarn", factor=4.0, beta_fast=2.0, beta_slow=0.1, truncate=False,
                                        attention_factor=1.25)),
    "llama_llama3": ("llama", scaled(**LLAMA3)),
    "llama_llama3_v5": ("llama", {"rope_theta": None, "rope_parameters": {
        "rope_theta": 500000.0, "original_max_position_embeddings": 16, **LLAMA3}}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": ("qwen2", {"num_hidden_layers": 2, "use_sliding_window": True, "sliding_window": WINDOW,
                               "max_window_layers": 1}),
    "qwen2_yarn": ("qwen2", scaled(type="yarn", factor=4.0)),
    "phi3": ("phi3", {"sliding_window": WINDOW}),
    "phi3_longrope": ("phi3", {**LONGROPE, "rope_scaling": {"type": "longrope", "short_factor": SHORT,
                                                           "long_factor": LONG}}),
    "phi4_mini": ("phi3", {**LONGROPE, "num_key_value_heads": 2, "partial_rotary_factor": 0.75,
                           "tie_word_embeddings": True,
                           "rope_scaling": {"type": "longrope", "short_factor": SHORT[:6], "long_factor": LONG[:6]}}),
    "gemma2": ("gemma2", gemma(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)),
    "qwen3": ("qwen3", {"head_dim": 24}),
    "gemma3": ("gemma3_text", gemma(rope_theta=1000000.0, rope_local_base_freq=10000.0, sliding_window_pattern=2,
                                    layer_types=["sliding_attention", "full_attention"],
                                    rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "gemma": ("gemma", {"head_dim": 16, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}),
    "ministral": ("ministral", {"num_hidden_layers": 2, "head_dim": 16, "sliding_window": WINDOW,
                                "layer_types": ["sliding_attention", "full_attention"]}),
    "olmo2": ("olmo2", {}),
    # The class gives windows its default base even if the file has another; files have the default, 500000.
    "olmo3": ("olmo3", {"num_hidden_layers": 2, "sliding_window": WINDOW, "rope_theta": 500000.0,
                        "layer_types": ["sliding_attention", "full_attention"],
                        **scaled(rope_type="yarn", factor=4.0)}),
    "granite": ("granite", {"embedding_multiplier": 12.0, "attention_multiplier": 0.125, "residual_multiplier": 0.22,
                            "logits_scaling": 6.0, "tie_word_embeddings": True}),
    "smollm3": ("smollm3", {"num_hidden_layers": 2, "no_rope_layer_interval": 2, "no_rope_layers": [1, 0]}),
    "exaone": ("exaone", {"num_hidden_layers": None, "num_layers": 2, "hidden_act": None,
                          "activation_function": "gelu_new", "rms_norm_eps": None, "layer_norm_epsilon": 1e-4,
                          **scaled(**LLAMA3)}),
    "starcoder2": ("starcoder2", {"norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh", "use_bias": True,
                                  "sliding_window": WINDOW, "rms_norm_eps": None}),
}


def config_of(case):
    model_type, changes = CASES[case]
    config = {"model_type": model_type, **BASE, **changes}
    return {name: value for name, value in config.items() if value is not None}


def random_bits(seed, count):
    """SplitMix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    return z ^ (z >> np.uint64(31))


def parameter(name, shape):
    """Float32 values in steps of 2^-23, with u in [-1, 1): 1 + u / 4 for norms, u for the embedding, u / 4 for all
    others."""
    seed = 0xcbf29ce484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001b3 % 2**64
    u = (random_bits(seed, int(np.prod(shape))) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1
    is_norm = "norm" in name and name.endswith(".weight")
    values = 1 + u / 4 if is_norm else u if "embed_tokens" in name else u / 4
    return values.astype(np.float32).reshape(shape)


@contextlib.contextmanager
def in_float64():
    before = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        for name in ("float", "float32"):
            stack.enter_context(mock.patch.object(torch, name, torch.float64))
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def make_model(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        parsed = transformers.AutoConfig.from_pretrained(folder)
    parsed._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.copy_(torch.from_numpy(parameter(name, tuple(values.shape)).astype(np.float64)))
    for name, buffer in model.named_buffers():
        assert not buffer.is_floating_point() or buffer.dtype == torch.float64, name
    return model


def record(model, ids):
    """Rows by name: "hidden.0" before the first layer, "hidden.N" after layer N - 1, "normed", "logits"."""
    seen = {}
    keep = lambda name, value: seen.setdefault(name, []).append(
        (value[0] if isinstance(value, tuple) else value).detach().reshape(-1, value[0].shape[-1]))
    body = model.model
    body.layers[0].register_forward_pre_hook(lambda module, inputs: keep("hidden.0", inputs[0]))
    for i, layer in enumerate(body.layers):
        layer.register_forward_hook(lambda module, inputs, output, i=i: keep(f"hidden.{i + 1}", output))
    body.norm.register_forward_hook(lambda module, inputs, output: keep("normed", output))
    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    cache, first = transformers.DynamicCache(config=model.config), 0
    for tokens in CALLS:
        rows = torch.tensor(ids[first:first + tokens])[None]
        positions = torch.arange(first, first + tokens)[None]
        with torch.no_grad():
            out = model(input_ids=rows, position_ids=positions, use_cache=True, **{cache_name: cache})
        keep("logits", out.logits)
        first += tokens
    return {name: torch.cat(rows).numpy() for name, rows in seen.items()}


def write(case):
    config = config_of(case)
    ids = [int(bits % np.uint64(config["vocab_size"])) for bits in random_bits(1, TOKENS)]
    with in_float64():
        model = make_model(config)
        rows = record(model, ids)
    header = {"versions": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
              "config": config, "parameters": sum(values.numel() for values in model.parameters()),
              "calls": CALLS, "ids": ids, "tensors": {}}
    data = b""
    for name, values in rows.items():
        assert values.dtype == np.float64 and values.shape[0] == TOKENS and np.isfinite(values).all(), name
        header["tensors"][name] = {"columns": values.shape[1], "offset": len(data)}
        data += values.astype("<f4").tobytes()
    with open(os.path.join(FOLDER, case + ".json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(header, indent=1) + "\n")
    with open(os.path.join(FOLDER, case + ".f32"), "wb") as file:
        file.write(data)
    scale = {name: float(np.sqrt((values**2).mean())) for name, values in rows.items()}
    print(case, len(data), {name: round(value, 3) for name, value in scale.items()})


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        write(name)
