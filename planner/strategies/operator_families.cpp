// planner/strategies/operator_families.cpp -- see operator_families.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/operator_families.h"

#include <map>

#include "jit/base/forever.h"

namespace seqtile::planner {
namespace {

using Names = std::initializer_list<const char*>;

// Names of torch functions, tensor methods, operators of PyTorch's dispatcher ("aten") and of Python, and torch.nn
// modules.

constexpr Names kElementwiseFunctions = {
    // arithmetic and comparisons
    "add", "sub", "rsub", "mul", "div", "truediv", "floordiv", "floor_divide", "true_divide", "pow", "mod", "remainder",
    "fmod", "eq", "ne", "lt", "gt", "le", "ge", "maximum", "minimum", "fmax", "fmin", "neg", "abs", "sign", "iadd",
    "isub", "imul", "itruediv", "and", "or", "xor", "__and__", "__or__", "__xor__", "and_", "or_", "logical_and",
    "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "isnan",
    "isinf", "isfinite", "addcmul", "addcdiv", "lerp", "where", "masked_fill", "clamp", "clamp_min", "clamp_max",
    "clip", "heaviside",
    // functions of one number
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos",
    "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "erf", "erfc", "erfinv", "floor", "ceil", "round", "trunc",
    "frac", "nan_to_num", "polar", "real", "imag", "conj", "angle",
    // activations
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "tanh", "sigmoid", "hardtanh",
    "hardswish", "hardsigmoid", "softplus", "softsign", "logsigmoid", "log_sigmoid", "threshold", "prelu", "dropout",
    "native_dropout", "feature_dropout", "alpha_dropout", "bernoulli", "stochastic_depth",
    // copies
    "type", "contiguous", "clone", "float", "half", "bfloat16", "double", "int", "long", "bool", "to", "_to_copy",
    "type_as", "copy", "fill", "cuda", "cpu", "requires_grad"};
constexpr Names kElementwiseModules = {"ReLU",      "ReLU6",      "LeakyReLU",   "ELU",      "SELU",        "CELU",
                                       "GELU",      "SiLU",       "Mish",        "Tanh",     "Sigmoid",     "Hardtanh",
                                       "Hardswish", "Softplus",   "Hardsigmoid", "Dropout",  "Dropout1d",   "Dropout2d",
                                       "Dropout3d", "LogSigmoid", "Softsign",    "Identity", "AlphaDropout"};
constexpr Names kPools = {"MaxPool1d",
                          "MaxPool2d",
                          "MaxPool3d",
                          "AvgPool1d",
                          "AvgPool2d",
                          "AvgPool3d",
                          "AdaptiveAvgPool1d",
                          "AdaptiveAvgPool2d",
                          "AdaptiveAvgPool3d",
                          "AdaptiveMaxPool1d",
                          "AdaptiveMaxPool2d",
                          "Upsample",
                          "max_pool1d",
                          "max_pool2d",
                          "max_pool3d",
                          "max_pool2d_with_indices",
                          "avg_pool1d",
                          "avg_pool2d",
                          "avg_pool3d",
                          "adaptive_avg_pool1d",
                          "adaptive_avg_pool2d",
                          "adaptive_avg_pool3d",
                          "_adaptive_avg_pool2d",
                          "adaptive_max_pool1d",
                          "adaptive_max_pool2d",
                          "interpolate",
                          "upsample_nearest1d",
                          "upsample_nearest2d",
                          "upsample_nearest3d",
                          "upsample_bilinear2d",
                          "upsample_bicubic2d",
                          "upsample_trilinear3d",
                          "upsample_linear1d",
                          "_upsample_bilinear2d_aa",
                          "_upsample_bicubic2d_aa"};
constexpr Names kBatchNorms = {"BatchNorm1d",
                               "BatchNorm2d",
                               "BatchNorm3d",
                               "SyncBatchNorm",
                               "batch_norm",
                               "native_batch_norm",
                               "_native_batch_norm_legit",
                               "_native_batch_norm_legit_functional",
                               "_native_batch_norm_legit_no_training",
                               "_batch_norm_with_update_functional"};
constexpr Names kConvolutions = {
    "Conv1d",      "Conv2d", "Conv3d", "ConvTranspose1d",  "ConvTranspose2d",  "ConvTranspose3d", "conv1d",
    "convolution", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};
constexpr Names kViews = {"view",      "_unsafe_view", "reshape", "Flatten", "flatten",   "Unflatten",
                          "unflatten", "unsqueeze",    "squeeze", "view_as", "reshape_as"};
constexpr Names kReductions = {"sum",
                               "mean",
                               "nansum",
                               "count_nonzero",
                               "prod",
                               "amax",
                               "amin",
                               "aminmax",
                               "argmax",
                               "argmin",
                               "all",
                               "any",
                               "std",
                               "var",
                               "std_mean",
                               "var_mean",
                               "logsumexp",
                               "norm",
                               "linalg_vector_norm",
                               "median"};
constexpr Names kAlong = {"cumsum",        "cumprod",        "logcumsumexp", "cummax",  "sort",
                          "argsort",       "topk",           "roll",         "flip",    "cat",
                          "concat",        "diff",           "gather",       "scatter", "scatter_add",
                          "slice_scatter", "select_scatter", "glu",          "cross"};
constexpr Names kCreated = {"arange",       "zeros",         "ones",
                            "full",         "empty",         "rand",
                            "randn",        "randint",       "randperm",
                            "eye",          "linspace",      "scalar_tensor",
                            "tensor",       "new_zeros",     "new_ones",
                            "new_full",     "new_empty",     "zeros_like",
                            "ones_like",    "full_like",     "empty_like",
                            "rand_like",    "randn_like",    "tril_indices",
                            "triu_indices", "empty_strided", "new_empty_strided",
                            "hann_window"};

/// max and min: elementwise for two tensors, a reduction along dimensions for one.
bool rule_extremum(RuleView& node) {
  return node.node().inputs.size() == 1 ? rule_reduced(node) : rule_elementwise(node);
}

const std::map<std::string, Family>& families() {
  static const auto& all = forever([] {
    std::map<std::string, Family> by_name;
    const auto give = [&](Family family, Names names) {
      for (const char* name : names) by_name[name] = family;
    };
    give(rule_elementwise, kElementwiseFunctions);
    give(rule_elementwise, kElementwiseModules);
    give(rule_conv, kConvolutions);
    give(rule_matmul, {"matmul", "bmm", "mm", "addmm", "baddbmm", "addbmm"});
    give(rule_einsum, {"einsum"});
    give(rule_experts, {"grouped_mm", "_grouped_mm", "grouped_mm_fallback"});
    give(rule_recurrence, {"LSTM", "GRU", "RNN", "lstm", "gru", "rnn_tanh", "rnn_relu"});
    give(rule_attention, {"attention", "scaled_dot_product_attention"});
    give(rule_rotary, {"rotary"});
    give(rule_gated, {"silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "relu_squared_and_mul"});
    give(rule_softmax,
         {"Softmax", "softmax", "_softmax", "LogSoftmax", "log_softmax", "_log_softmax", "_safe_softmax"});
    give(rule_norm, {"LayerNorm", "RMSNorm", "layer_norm", "rms_norm", "native_layer_norm"});
    give(rule_group_norm, {"GroupNorm", "group_norm"});
    give(rule_instance_norm, {"InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "instance_norm"});
    give(rule_batch_norm, kBatchNorms);
    give(rule_embedding, {"Embedding", "embedding"});
    give(rule_pool, kPools);
    give(rule_view, kViews);
    give(rule_permuted, {"permute", "transpose", "t", "swapaxes", "swapdims", "numpy_T", "mT"});
    give(rule_split, {"split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk"});
    give(rule_getitem, {"getitem"});
    give(rule_part, {"slice", "narrow", "pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d",
                     "replication_pad2d", "ZeroPad2d", "ReflectionPad2d"});
    give(rule_without, {"select", "unbind"});
    give(rule_stacked, {"stack"});
    give(rule_expanded,
         {"expand", "expand_as", "broadcast_to", "repeat", "tile", "alias", "detach", "lift_fresh_copy"});
    give(rule_along, kAlong);
    give(rule_pair, {"tril", "triu", "linalg_inv", "linalg_cholesky"});
    give(rule_reduced, kReductions);
    give(rule_extremum, {"min", "max"});
    give(rule_counted, {"histc", "bincount"});
    give(rule_loss, {"cross_entropy_loss", "cross_entropy", "nll_loss", "nll_loss_nd", "mse_loss", "l1_loss",
                     "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"});
    give(rule_created, kCreated);
    give(rule_indexed, {"index", "index_put", "index_select"});
    give(rule_one_hot, {"one_hot"});
    return by_name;
  }());
  return all;
}

}  // namespace

Family family_of_operator(const Node& node) {
  const std::string name = operator_name(node);
  const auto found = families().find(name);
  if (found != families().end()) return found->second;
  if (!name.ends_with('_')) return nullptr;
  const auto plain = families().find(name.substr(0, name.size() - 1));
  return plain == families().end() ? nullptr : plain->second;
}

bool is_linear(const Node& node) {
  const std::string name = operator_name(node);
  return name == "Linear" || name == "linear";
}

}  // namespace seqtile::planner
