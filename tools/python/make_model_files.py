#!/usr/bin/env python3
# tools/python/make_model_files.py -- writes transformers' reading of model files: make_model_files.py OUT.json
# SPDX-License-Identifier: Apache-2.0
#
# Each case is a config.json and the numbers in the package's own class after reading it: sizes, windows of the layers,
# rope. tests/models/model_file_test.cpp reads the same files and compares. Run this program again where the package is
# installed; it writes the versions into the file.
import json
import sys

import torch
import transformers
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

TYPES = ["llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2", "olmo3", "granite",
         "smollm3", "phi3", "starcoder2", "exaone"]
SMALL = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 8, "head_dim": 64,
         "vocab_size": 1000, "intermediate_size": 768, "max_position_embeddings": 8192}
FACTORS = [1 + i / 64 for i in range(32)]
LLAMA3 = {"factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}


def small(model_type, **fields):
    return {"model_type": model_type, **SMALL, **fields}


def cases():
    for model_type in TYPES:
        yield f"{model_type}_defaults", {"model_type": model_type}
    for model_type in TYPES:
        yield f"{model_type}_small", small(model_type)
    yield "llama_theta_v4", small("llama", rope_theta=5e5, rope_scaling=None)
    yield "llama_theta_v5", small("llama", rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    yield "llama_linear_v4", small("llama", rope_theta=1e5, rope_scaling={"type": "linear", "factor": 4.0})
    yield "llama_dynamic_v4", small("llama", rope_scaling={"type": "dynamic", "factor": 8.0})
    yield "llama_llama3_v4", small("llama", rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3})
    yield "llama_llama3_v5", small("llama", rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3})
    yield "qwen2_yarn", small("qwen2", rope_theta=1e6, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048})
    yield "llama_yarn_mscale", small("llama", rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 16,
        "beta_slow": 2, "original_max_position_embeddings": 512, "truncate": False})
    yield "llama_yarn_attention_factor", small("llama", rope_scaling={
        "rope_type": "yarn", "factor": 2.0, "attention_factor": 1.25})
    yield "phi3_longrope", small("phi3", original_max_position_embeddings=1024, rope_scaling={
        "type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS})
    yield "phi3_partial", small("phi3", partial_rotary_factor=0.75, rope_scaling={
        "type": "longrope", "short_factor": FACTORS[:24], "long_factor": FACTORS[:24]})
    yield "llama_longrope_attention_factor", small("llama", rope_parameters={
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": FACTORS, "long_factor": FACTORS,
        "attention_factor": 1.5, "original_max_position_embeddings": 1024})
    yield "gemma3_v4", small("gemma3_text", rope_theta=2e6, rope_local_base_freq=2e4, sliding_window=512,
                             sliding_window_pattern=4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    yield "gemma3_v5", small("gemma3_text", sliding_window=512, rope_parameters={
        "full_attention": {"rope_type": "linear", "rope_theta": 2e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})
    yield "olmo3_yarn", small("olmo3", rope_scaling={
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024})
    yield "qwen2_windows", small("qwen2", use_sliding_window=True, sliding_window=256, max_window_layers=5)
    yield "qwen3_windows_default", small("qwen3", use_sliding_window=True, max_window_layers=3)
    yield "mistral_no_window", small("mistral", sliding_window=None)
    yield "gemma2_no_caps", small("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None)
    yield "smollm3_list", small("smollm3", no_rope_layers=[1, 0, 1, 0, 1, 0, 1, 0])
    yield "smollm3_windows", small("smollm3", use_sliding_window=True, sliding_window=128)
    yield "llama_biases", small("llama", attention_bias=True, mlp_bias=True)
    yield "granite_multipliers", small("granite", embedding_multiplier=12.0, residual_multiplier=0.22,
                                       attention_multiplier=0.0078125, logits_scaling=16.0)


def rope_of(config, layer_type):
    nested = "full_attention" in config.rope_parameters
    rope = config.rope_parameters[layer_type] if nested else config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention_factor = 1.0
    if rope["rope_type"] != "default":
        _, attention_factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, layer_type=layer_type if nested else None)
    partial = rope.get("partial_rotary_factor", 1.0) if config.model_type == "phi3" else 1.0
    return {"type": rope["rope_type"], "base": rope["rope_theta"], "rotary_dim": int(head_dim * partial),
            "factor": rope.get("factor") or 1.0, "attention_factor": attention_factor}


def expected(config):
    layers = config.num_hidden_layers
    types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None) or 0
    has_window = [t == "sliding_attention" for t in types] if types else [window > 0] * layers
    has_rope = (getattr(config, "no_rope_layers", None) or [1] * layers)[:layers]
    ropes = {t: rope_of(config, t) for t in ("full_attention", "sliding_attention")}
    return {
        "sizes": [config.hidden_size, config.intermediate_size, layers, config.vocab_size,
                  config.max_position_embeddings, config.num_attention_heads,
                  config.num_key_value_heads or config.num_attention_heads,
                  getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads],
        "eps": getattr(config, "rms_norm_eps", None) or config.norm_epsilon,
        "tied": bool(config.tie_word_embeddings),
        "windows": [window if w else 0 for w in has_window],
        "ropes": [ropes["sliding_attention" if w else "full_attention"] if r else None
                  for w, r in zip(has_window, has_rope)],
        "caps": [getattr(config, "attn_logit_softcapping", None) or 0,
                 getattr(config, "final_logit_softcapping", None) or 0],
        "multipliers": [getattr(config, name, 1.0) for name in (
            "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")],
        "query_scalar": getattr(config, "query_pre_attn_scalar", 0),
    }


def main():
    rows = []
    for name, fields in cases():
        given = json.loads(json.dumps(fields))
        config = AutoConfig.for_model(**given)
        rows.append({"name": name, "config": fields, "expected": expected(config)})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"versions": %s, "cases": [\n' % json.dumps(
            {"transformers": transformers.__version__, "torch": torch.__version__}))
        file.write(",\n".join(json.dumps(row) for row in rows) + "]}\n")


if __name__ == "__main__":
    main()
