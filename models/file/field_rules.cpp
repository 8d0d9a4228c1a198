// models/file/field_rules.cpp -- see field_rules.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/field_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "autotune/text/json_text.h"

namespace seqtile::models {
namespace {

/// The values of a field that change nothing.
enum class Neutral {
  any,    ///< any value: layers do not read the field
  off,    ///< null, false, 0, infinity, an empty text, list or object
  one,    ///< null, 1 or a list of ones
  yes,    ///< null or true
  plain,  ///< null, or the text before the | in the rule's reason
  wide,   ///< as `off`, "auto", or a number format of 16 or 32 bits
};

struct Rule {
  std::string_view names;  ///< with a space before and after each; a trailing * matches any ending
  Neutral neutral;
  std::string_view reason;  ///< why the field is ignored, or the feature it asks for; `plain`: "TEXT|feature"
};

constexpr Rule kRules[] = {
    {" transformers_version architectures auto_map use_cache cache_implementation torchscript output_attentions "
     "output_hidden_states return_dict use_return_dict use_bfloat16 tf_legacy_loss chunk_size_feed_forward "
     "attn_implementation use_flash_attn use_flash_attention_2 flash_attention tokenizer_class name_or_path "
     "gradient_checkpointing model_max_length max_sequence_length seq_length onnx vocab_file transformers.js_config "
     "is_llama_config add_bos_token add_eos_token ",
     Neutral::any, "of the program that loads the model"},
    {" id2label label2id num_labels finetuning_task problem_type task_specific_params ", Neutral::any,
     "of heads for classes"},
    {" initializer_range initializer_factor init_std init_method_std emb_init_std init_cutoff_factor init_fn "
     "init_device init_config use_scaled_init use_scaled_init_method rescale_prenorm_residual output_router_logits "
     "aux_loss_alpha z_loss num_nextn_predict_layers max_grad_norm ",
     Neutral::any, "of training"},
    {" pretraining_tp ", Neutral::any, "sums in another order, the same products"},
    {" max_length min_length do_sample temperature top_k top_p typical_p num_beams num_beam_groups diversity_penalty "
     "repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids prefix "
     "num_return_sequences remove_invalid_values exponential_decay_length_penalty suppress_tokens early_stopping "
     "begin_suppress_tokens max_new_tokens ",
     Neutral::any, "of the choice of tokens"},
    {" original_max_position_embeddings ", Neutral::any, "of scalings that the rope of the file is not"},
    {" max_window_layers sliding_window_size no_rope_layer_interval ", Neutral::any,
     "of windows that the type does not have"},
    {" is_decoder ", Neutral::any, "a decoder it is"},

    {" kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim ", Neutral::off,
     "attention over a latent cache (MLA)"},
    {" linear_num_key_heads linear_num_value_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim "
     "full_attention_interval linear_attn_config hybrid_override_pattern layers_block_type attn_layer_indices "
     "attn_layer_period attn_layer_offset mamba_d_state mamba_d_conv mamba_expand mamba_num_heads ssm_cfg "
     "ssm_state_size "
     "state_size conv_kernel conv_L_cache lru_width block_types ",
     Neutral::off, "layers with a state (Mamba, linear attention)"},
    {" cross_attention_layers add_cross_attention cross_attention_hidden_size is_encoder_decoder encoder_layers "
     "decoder_layers encoder_config ",
     Neutral::off, "an encoder or cross-attention"},
    {" alibi use_alibi ", Neutral::off, "attention biased by distance"},
    {" clip_qkv ", Neutral::off, "queries, keys and values that are cut off"},
    {" attention_chunk_size attn_temperature_tuning attention_sinks num_sink_tokens sink_tokens llama_4_scaling_beta "
     "dual_chunk_attention_config ",
     Neutral::off, "attention in chunks, with sinks or scaled by position"},
    {" kv_cache_scheme kv_cache_quant* ", Neutral::off, "a cache of quantised keys and values"},
    {" kv_cache_dtype ", Neutral::wide, "a cache of quantised keys and values"},
    {" weight_dtype weights_dtype ", Neutral::wide, "quantised weights"},
    {" num_meta_tokens num_memory_tokens num_mem_tokens num_virtual_tokens ", Neutral::off,
     "tokens that the model puts before the text"},
    {" qk_layernorm use_qk_norm qk_norm use_qk_layernorm ", Neutral::off, "norms of queries and keys"},
    {" use_bidirectional_attention bidirectional prefix_lm ", Neutral::off, "attention that sees what comes later"},
    {" is_causal causal ", Neutral::yes, "attention that sees what comes later"},
    {" parallel_attn use_parallel_residual parallel_residual use_parallel_attention_mlp ", Neutral::off,
     "attention and feed-forward part side by side"},
    {" attn_logit_softcapping final_logit_softcapping attn_logit_soft_cap logits_soft_cap attn_soft_cap swiglu_limit "
     "swiglu_alpha ",
     Neutral::off, "values that are capped"},
    {" query_pre_attn_scalar ", Neutral::off, "attention scaled by other than the size of heads"},
    {" embedding_multiplier residual_multiplier attention_multiplier logits_scaling logit_scale logits_scale "
     "lm_head_multiplier attention_in_multiplier attention_out_multiplier key_multiplier scale_emb scale_depth "
     "mup_scale mup_width_scale mup_attn_multiplier mup_embedding_multiplier value_scale interpolate_factor "
     "full_attn_mod width_scale depth_scale ",
     Neutral::one, "products with a factor"},
    {" dim_model_base use_mup mup_use_scaling mup_enable ", Neutral::off, "products with factors of muP"},
    {" attention_bias mlp_bias qkv_bias use_qkv_bias bias use_bias lm_head_bias head_bias attention_out_bias "
     "add_bias_linear add_qkv_bias use_bias_in_mlp ",
     Neutral::off, "a bias that the type does not have"},
    {" rope_interleaved rope_interleave interleaved_rope rotary_interleaved rope_traditional ", Neutral::off,
     "rotations of neighbouring elements"},
    {" is_neox_style ", Neutral::yes, "rotations of neighbouring elements"},
    {" partial_rotary_factor rotary_pct rope_pct rope_percent rotary_percent ", Neutral::one,
     "heads of which a part is rotated"},
    {" rope_scaling_factor rope_scaling_type rope_factor rope_ratio rope_type rotary_dim rope_dim rotary_emb_base "
     "rope_base rope_local_base_freq rope_freq_base ",
     Neutral::off, "rope that the type does not have"},
    {" use_mrope mrope_section ", Neutral::off, "rotations by three axes of position"},
    {" use_rope ", Neutral::yes, "layers without rope"},
    {" no_rope_layers ", Neutral::one, "layers without rope"},
    {" position_embedding_type ", Neutral::plain, "rope|positions that are not rotations"},
    {" norm_type layer_norm_type ", Neutral::plain, "rms_norm|other norms"},
    {" use_sliding_window sliding_window sliding_window_pattern attention_window_size ", Neutral::off,
     "windows that the type does not have"},
    {" per_layer_config block_configs layer_config num_heads_per_layer num_attention_heads_per_layer "
     "num_key_value_heads_per_layer num_kv_shared_layers num_query_heads ffn_multipliers ",
     Neutral::off, "layers of different sizes"},
    {" hidden_size_per_layer_input altup_num_inputs laurel_rank vocab_size_per_layer_input "
     "activation_sparsity_pattern ",
     Neutral::off, "embeddings by layer"},
    {" pruned_heads ", Neutral::off, "heads that are left out"},
    {" tie_encoder_decoder ", Neutral::off, "an encoder"},
    {" use_post_norm post_norm ", Neutral::off, "norms of results"},
    {" normalize_embedding normalize_embeddings embedding_layernorm scale_embedding scale_embeddings ", Neutral::off,
     "embeddings that are scaled or normalised"},
};

constexpr Rule kRopeRules[] = {
    {" finetuned ", Neutral::any, "of training"},
    {" original_max_position_embeddings ", Neutral::any, "of scalings that the type of rope is not"},
    {" attn_factor extrapolation_factor ", Neutral::one, "rotations that are scaled"},
    {" llama_4_scaling_beta ", Neutral::off, "attention that is scaled by position"},
    {" mrope_section mrope_interleaved ", Neutral::off, "rotations by three axes of position"},
    {" partial_rotary_factor ", Neutral::one, "heads of which a part is rotated"},
    {" long_mscale short_mscale ", Neutral::one, "rotations that are scaled"},
};

constexpr std::string_view kRopeFields =
    " factor low_freq_factor high_freq_factor beta_fast beta_slow truncate attention_factor mscale mscale_all_dim "
    "short_factor long_factor alpha ";

// Words between the _ of a field's name, as files name their experts and their quantised weights in many ways.
constexpr std::string_view kExperts = " expert experts ", kExpertWords = " expert experts moe ";
constexpr std::string_view kExpertValues = " expert experts moe smoe mixtral ";
constexpr std::string_view kFeedForwardWords = " mlp ffn ffw ff feed ";  ///< of fields where "sparse" means experts
/// Words of fields whose objects describe layers.
constexpr std::string_view kLayerWords = " mlp ffn ffw ff feed block blocks layer layers decoder ";
constexpr std::string_view kCountWords = " num n nb number count ";
constexpr std::string_view kPartWords = " per shared group groups tok token used active ";
constexpr std::string_view kQuantisedWords =
    " quant* bit bits wbit wbits abit abits nbit nbits 2bit 3bit 4bit 8bit fp4 fp8 nf4 mxfp4 nvfp4 int4 int8 awq gptq "
    "bnb gguf ";
// Names without such a word.
constexpr std::string_view kExpertFields =
    " decoder_sparse_step first_k_dense_replace router_aux_loss_coef norm_topk_prob mlp_only_layers ";
constexpr std::string_view kQuantisedFields = " compression_config ";
// Words of features that have many names. Beside a word of the second line a field chooses code, not mathematics.
constexpr std::string_view kFeatureWords = " rope rotary ntk logn alibi bias biases sink sinks ";
constexpr std::string_view kCodeWords = " fusion fused impl implementation kernel cache fp32 float32 ";
constexpr int kPlainBits = 16;  ///< weights with at least so many bits are not quantised

bool has_word(std::string_view words, const std::string& word) {
  if (words.find(" " + word + " ") != std::string_view::npos) return true;
  const size_t star = words.find('*');
  if (star == std::string_view::npos) return false;
  const size_t begin = words.rfind(' ', star) + 1;
  return word.starts_with(words.substr(begin, star - begin));
}

/// Whether one of the words between the _ of a name is among `words`.
bool has_part(std::string_view words, const std::string& name) {
  std::string part;
  for (const char c : name + '_') {
    if (c != '_') part += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (has_word(words, std::exchange(part, {}))) return true;
  }
  return false;
}

bool is_off(const Json& value) {
  if (value.is_number()) return value == 0 || std::abs(value.get<double>()) == std::numeric_limits<double>::infinity();
  if (value.is_string()) return value.get<std::string>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

bool is_one(const Json& value) {
  if (value.is_array()) return std::ranges::all_of(value, [](const Json& item) { return item == 1 || item == true; });
  return value.is_null() || value == 1;
}

bool changes_nothing(const Json& value, const Rule& rule) {
  switch (rule.neutral) {
    case Neutral::any: return true;
    case Neutral::off: return is_off(value);
    case Neutral::one: return is_one(value);
    case Neutral::yes: return value.is_null() || value == true;
    case Neutral::plain:
      return value.is_null() || (value.is_string() && value == rule.reason.substr(0, rule.reason.find('|')));
    case Neutral::wide:
      return is_off(value) || value == "auto" || value == "float32" || value == "bfloat16" || value == "float16";
  }
  return false;
}

std::string reason_of(const Rule& rule) {
  return rule.neutral == Neutral::any ? std::string(rule.reason) : "this value changes nothing";
}

/// The reason to ignore a field, by its name's form: token ids and training rates have many names, and names that begin
/// with _ are internal to transformers. Empty for other names.
std::string reason_by_shape(const std::string& name, const Json& value) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  if (ends("_token_id") || ends("_token_index") || ends("_token_ids")) return "numbers of tokens";
  // A bare number is not ignored: it can be a number of tokens that the model puts before the text.
  if ((ends("_token") || ends("_tokens")) && (value.is_null() || value.is_string() || value.is_array()))
    return "names of tokens";
  if (name.find("dropout") != std::string::npos || ends("_pdrop") || ends("_loss_coef")) return "of training";
  if (name.starts_with("_") || name.starts_with("unsloth_")) return "of the program that loads the model";
  return {};
}

/// The name without the _ that transformers puts before internal fields.
std::string known_name(const std::string& name) { return name.substr(name.starts_with('_') ? 1 : 0); }

const Rule* rule_of(std::span<const Rule> rules, const std::string& name) {
  const auto rule = std::ranges::find_if(rules, [&](const Rule& r) { return has_word(r.names, known_name(name)); });
  return rule == rules.end() ? nullptr : &*rule;
}

bool sorted(const ConfigReader& config, const std::string& name, std::span<const Rule> rules) {
  const Rule* rule = rule_of(rules, name);
  if (!rule) return false;
  if (!changes_nothing(config.json()[name], *rule)) {
    const size_t what = rule->neutral == Neutral::plain ? rule->reason.find('|') + 1 : 0;
    config.fail(ErrorCode::unsupported, name,
                fmt::format("asks for {}, which layers of this type do not compute here; give a model without it",
                            rule->reason.substr(what)));
  }
  config.notes().ignored.push_back({config.path(name), reason_of(*rule)});
  return true;
}

bool counts_experts(const std::string& name) {
  return has_part(kExperts, name) && has_part(kCountWords, name) && !has_part(kPartWords, name);
}

bool is_of_experts(const std::string& name) { return has_part(kExpertWords, name) || has_word(kExpertFields, name); }

/// The words of a text, with _ between them: "Llama_Moe_For_Causal_LM" for "LlamaMoEForCausalLM", "sparse_moe" for
/// "sparse-moe".
std::string in_words(std::string_view text) {
  std::string words;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool is_moe = text.substr(i, 3) == "MoE" || text.substr(i, 3) == "MOE";
    const bool is_after_small = !words.empty() && !std::isupper(static_cast<unsigned char>(words.back()));
    if (std::isupper(c) && is_after_small) words += '_';
    if (is_moe) words += text[i], words += "oe", i += 2;
    else words += static_cast<char>(std::isalnum(c) ? c : '_');
  }
  return words;
}

/// The text in a value, or in a list, that names experts: "moe", "LlamaMoEForCausalLM", the "sparse" of a feed-forward
/// part. Empty for other values.
std::string said_experts(const Json& value, bool is_feed_forward) {
  if (value.is_string()) {
    const std::string words = in_words(value.get<std::string>());
    const bool is_said = has_part(kExpertValues, words) || (is_feed_forward && has_part(" sparse ", words));
    return is_said ? value.get<std::string>() : "";
  }
  std::string said;
  if (value.is_array())
    for (const Json& item : value)
      if (said.empty()) said = said_experts(item, is_feed_forward);
  return said;
}

/// Whether the value of a field may say of what kind layers are. Paths of files and names of tokens may not.
bool chooses_layers(const std::string& name, const Json& value) {
  if (name == "architectures") return true;
  return name != "model_type" && !rule_of(kRules, name) && reason_by_shape(name, value).empty();
}

/// `said`: the text of a list that says it, else empty.
[[noreturn]] void refuse_as_experts(const ConfigReader& config, const std::string& name, const std::string& said = {}) {
  config.fail(
      ErrorCode::unsupported, name,
      fmt::format("asks for a mixture of experts{}, which is not modelled; give the config.json of a dense model",
                  said.empty() ? "" : fmt::format(" ({})", autotune::excerpt(Json(said)))));
}

/// Refuses a mixture of experts, said by a field's name, its value, or an object of layers such as ffn_config. If a
/// count of experts is none or one, the fields beside it have no effect.
void refuse_experts(const ConfigReader& config) {
  bool has_count = false;
  for (const auto& [name, value] : config.json().items()) has_count = has_count || counts_experts(name);
  for (const auto& [name, value] : config.json().items()) {
    if (is_of_experts(name)) {
      config.use(name);
      if (is_off(value) || is_one(value) || (has_count && !counts_experts(name))) continue;
      refuse_as_experts(config, name);
    }
    if (has_count || !chooses_layers(name, value)) continue;
    if (const std::string said = said_experts(value, has_part(kFeedForwardWords, name)); !said.empty())
      refuse_as_experts(config, name, value.is_array() ? said : "");
    if (value.is_object() && has_part(kLayerWords, name))
      refuse_experts(ConfigReader(value, config.where() + ": " + name, config.notes(), config.path(name) + "."));
  }
}

constexpr std::string_view kQuantisedReason =
    "which is not served; give the config.json of the model that was quantised: its weights have 16 or 32 bits";

/// Whether a field that is not read may change rope, biases or attention.
bool names_feature(const std::string& name) { return has_part(kFeatureWords, name) && !has_part(kCodeWords, name); }

/// Refuses BitNet's files. Their model_type is that of the model they were made from.
void refuse_bitnet(const ConfigReader& config) {
  if (!config.has("architectures")) return;
  for (const Json& name : config.json()["architectures"])
    for (const char* spelling : {"BitNet", "Bitnet"})
      if (name.is_string() && name.get<std::string>().find(spelling) != std::string::npos)
        config.fail(ErrorCode::unsupported, "architectures",
                    fmt::format("has {}: the weights are quantised to three values, {}", autotune::excerpt(name),
                                kQuantisedReason));
}

/// The value as note_default() writes it.
std::string default_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

/// Says what the text model has instead of `value`, the value of the field outside. Empty if both agree.
std::string difference(const ConfigReader& text_model, const std::string& name, const Json& value) {
  if (text_model.contains(name)) {
    const Json& own = text_model.json()[name];
    if (own == value) return {};
    return own.is_structured() ? fmt::format("is another {}", own.type_name()) : "is " + autotune::excerpt(own);
  }
  const auto& defaults = text_model.notes().defaults;
  const auto found = std::ranges::find(defaults, text_model.path(name), &FieldNote::name);
  if (found == defaults.end()) return is_off(value) ? "" : "is absent";
  return found->text == default_text(value) ? "" : fmt::format("is absent, default {}", found->text);
}

}  // namespace

void refuse_other_models(const ConfigReader& config) {
  refuse_bitnet(config);
  for (const auto& [name, value] : config.json().items()) {
    const bool is_quantised = has_part(kQuantisedWords, name) || has_word(kQuantisedFields, name);
    if (!is_quantised || rule_of(kRules, name)) continue;
    config.use(name);
    if (is_off(value) || value == "none") continue;
    if (value.is_number() && value >= kPlainBits) continue;
    std::string method;
    for (const char* key : {"quant_method", "quant_algo", "format", "quantization_method"})
      if (method.empty() && value.is_object() && value.contains(key) && value[key].is_string())
        method = fmt::format(" by {}", value[key].get<std::string>());
    config.fail(ErrorCode::unsupported, name,
                fmt::format("says that the weights are quantised{}, {}", method, kQuantisedReason));
  }
  refuse_experts(config);
}

void sort_fields(const ConfigReader& config) {
  for (const auto& [name, value] : config.json().items()) {
    if (config.is_used(name) || sorted(config, name, kRules)) continue;
    const bool is_feature = names_feature(name);
    if (is_feature && !is_off(value))
      config.fail(ErrorCode::unsupported, name,
                  "by its name changes rope, biases or attention, and is none that is read; give a model without it");
    const std::string reason = config.is_used(known_name(name)) ? ""
                               : is_feature                     ? "this value changes nothing"
                                                                : reason_by_shape(name, value);
    if (!reason.empty()) config.notes().ignored.push_back({config.path(name), reason});
    else
      config.notes().warnings.push_back(autotune::one_line(fmt::format(
          "{}: field {} is not known and was not read; if it changes what layers compute, results are wrong",
          config.where(), name)));
  }
}

void sort_outer_fields(const ConfigReader& file, const std::string& part, const ConfigReader& text_model) {
  for (const auto& [name, value] : file.json().items()) {
    if (name == part || file.is_used(name)) continue;
    const Rule* rule = rule_of(kRules, name);
    const bool has_meaning = text_model.is_used(name) || (rule ? !changes_nothing(value, *rule) : names_feature(name));
    const std::string other = has_meaning ? difference(text_model, name, value) : "";
    if (other.empty()) file.notes().ignored.push_back({name, "beside the text model"});
    else
      file.notes().warnings.push_back(
          autotune::one_line(fmt::format("{}: field {} is {}, but {}.{} {}; only {} counts, and results are wrong if "
                                         "the field is of the text model",
                                         file.where(), name, autotune::excerpt(value), part, name, other, part)));
  }
}

void sort_rope_fields(const ConfigReader& rope, const std::string& rope_type) {
  for (const auto& [name, value] : rope.json().items()) {
    if (rope.is_used(name) || sorted(rope, name, kRopeRules)) continue;
    if (value.is_null() || (name == "factor" && value == 1)) continue;
    rope.notes().warnings.push_back(autotune::one_line(
        has_word(kRopeFields, name) ? fmt::format("{}: field {} means nothing to rope of type {} and was not used",
                                                  rope.where(), name, rope_type)
                                    : fmt::format("{}: field {} is not known and was not read", rope.where(), name)));
  }
}

}  // namespace seqtile::models
