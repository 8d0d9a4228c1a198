// models/file/layer_reader.cpp -- see layer_reader.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/file/layer_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/base/counted.h"
#include "models/file/rope_reader.h"

namespace seqtile::models {
namespace {

constexpr const char* kLayerTypes = "layer_types";

struct Layer {
  bool has_window = false, has_rope = true;
};

class LayerReader {
 public:
  LayerReader(const ConfigReader& config, const ModelType& type, const Model& model)
      : config_(config), type_(type), layers_(static_cast<size_t>(model.layers)), positions_(model.max_positions) {}

  std::vector<Layer> run() {
    read_window();
    read_rope_of_layers();
    if (config_.has(kLayerTypes)) read_types();
    else config_.use(kLayerTypes), set_by_rule();
    return layers_;
  }
  int64_t window() const { return window_; }

 private:
  /// Sets the number of keys that layers with a window see. 0: no layer has a window.
  void read_window() {
    const bool has_switch = type_.windows == Windows::last || type_.windows == Windows::with_rope;
    const bool is_on = !has_switch || config_.flag("use_sliding_window", false);
    if (type_.windows == Windows::none) return refuse_window();
    const auto fallback = type_.window ? std::optional(type_.window) : std::nullopt;
    const auto window = config_.optional_size("sliding_window", kMostPositions, fallback);
    window_ = is_on ? window.value_or(0) : 0;
  }

  /// A window that is at least as long as every sequence changes nothing.
  void refuse_window() const {
    config_.use("sliding_window");
    if (!config_.has("sliding_window")) return;
    if (*config_.optional_size("sliding_window", kMostPositions, {}) < positions_)
      config_.fail(ErrorCode::unsupported, "sliding_window",
                   fmt::format("asks for windows, which layers of type {} do not have; set it to null", type_.name));
  }

  void read_rope_of_layers() {
    if (type_.windows != Windows::with_rope) return;
    const int64_t interval = config_.has("no_rope_layers") && !config_.has("no_rope_layer_interval")
                                 ? 0
                                 : config_.size("no_rope_layer_interval", kMostLayers, 4);
    const auto by_interval = [&](size_t layer) { return (static_cast<int64_t>(layer) + 1) % interval != 0; };
    config_.use("no_rope_layer_interval"), config_.use("no_rope_layers");
    if (!config_.has("no_rope_layers")) {
      for (size_t i = 0; i < layers_.size(); ++i) layers_[i].has_rope = by_interval(i);
      return;
    }
    const std::vector<double> list = config_.numbers("no_rope_layers", 0, 1);
    if (list.size() < layers_.size())
      config_.refuse("no_rope_layers", fmt::format("has {}, must have one for each of {}",
                                                   counted(list.size(), "number"), counted(layers_.size(), "layer")));
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (list[i] != 0 && list[i] != 1)
        config_.refuse("no_rope_layers", fmt::format("gives layer {} {}, must give it 0 or 1", i, list[i]));
      layers_[i].has_rope = list[i] != 0;
      if (interval && layers_[i].has_rope != by_interval(i))
        config_.refuse("no_rope_layers", fmt::format("gives layer {} {}, but no_rope_layer_interval is {}; keep one of "
                                                     "them",
                                                     i, list[i] != 0 ? "rope" : "none", interval));
    }
  }

  int64_t pattern() const {
    if (config_.has("_sliding_window_pattern")) return config_.size("_sliding_window_pattern", kMostLayers, 0);
    if (type_.name == "gemma3_text" || config_.has("sliding_window_pattern"))
      return config_.size("sliding_window_pattern", kMostLayers, type_.pattern);
    return type_.pattern;
  }

  /// The layers that have a window according to the fields other than layer_types.
  std::vector<bool> rule() const {
    std::vector<bool> windows(layers_.size());
    const int64_t last = type_.windows == Windows::last && window_
                             ? static_cast<int64_t>(config_.number("max_window_layers", 0, kMostLayers, 28))
                             : 0;
    const int64_t every = type_.windows == Windows::pattern ? pattern() : type_.windows == Windows::even ? 2 : 1;
    if (type_.windows == Windows::even && config_.has("sliding_window_pattern") && pattern() != 2)
      config_.refuse("sliding_window_pattern",
                     fmt::format("must be 2: {} has a window in every other layer", type_.name));
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      switch (type_.windows) {
        case Windows::none: break;
        case Windows::all: windows[i] = window_ > 0; break;
        case Windows::even:
        case Windows::pattern: windows[i] = window_ > 0 && (layer + 1) % every != 0; break;
        case Windows::last: windows[i] = window_ > 0 && layer >= last; break;
        case Windows::with_rope: windows[i] = window_ > 0 && !layers_[i].has_rope; break;
      }
    }
    return windows;
  }

  void set_by_rule() {
    const std::vector<bool> windows = rule();
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].has_window = windows[i];
    if (type_.windows == Windows::even || type_.windows == Windows::pattern)
      config_.note_default(kLayerTypes,
                           fmt::format("{} of {} with a window", std::ranges::count(windows, true), layers_.size()));
  }

  void read_types() {
    const Json& list = config_[kLayerTypes];
    if (!list.is_array() || list.size() != layers_.size())
      config_.refuse(kLayerTypes, fmt::format("must be a list of {}, one a layer", counted(layers_.size(), "text")));
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].has_window = has_window(list[i], i);
    check_agrees(list);
  }

  bool has_window(const Json& item, size_t layer) const {
    if (item == "full_attention") return false;
    if (item != "sliding_attention")
      config_.fail(item.is_string() ? ErrorCode::unsupported : ErrorCode::invalid_argument, kLayerTypes,
                   fmt::format("gives layer {} {}; full_attention and sliding_attention are computed", layer,
                               item.is_string() ? item.dump().substr(0, 40) : "no text"));
    if (window_ == 0)
      config_.refuse(kLayerTypes,
                     fmt::format("gives layer {} a window, but there is none: {}", layer, why_no_window()));
    return true;
  }

  std::string why_no_window() const {
    if (type_.windows == Windows::none) return fmt::format("{} has none", type_.name);
    return type_.windows == Windows::last || type_.windows == Windows::with_rope
               ? "use_sliding_window is off or sliding_window null"
               : "sliding_window is null or off";
  }

  /// Refuses layer_types that contradict a field which the class would use without layer_types.
  void check_agrees(const Json& list) const {
    const bool has_pattern = config_.has("sliding_window_pattern") || config_.has("_sliding_window_pattern");
    const bool decides = type_.windows == Windows::all || type_.windows == Windows::none || has_pattern ||
                         (type_.windows == Windows::last && window_ && config_.has("max_window_layers"));
    for (const char* name : {"max_window_layers", "sliding_window_pattern", "_sliding_window_pattern"})
      config_.use(name);
    if (!decides || type_.name == "ministral") return;
    const std::vector<bool> windows = rule();
    for (size_t i = 0; i < layers_.size(); ++i)
      if (windows[i] != layers_[i].has_window)
        config_.refuse(kLayerTypes, fmt::format("gives layer {} {}, but {} gives it {}; keep one of them", i,
                                                list[i].get<std::string>(), other_field(has_pattern),
                                                windows[i] ? "a window" : "all keys"));
  }

  const char* other_field(bool has_pattern) const {
    if (has_pattern) return "sliding_window_pattern";
    return type_.windows == Windows::last ? "max_window_layers" : "sliding_window";
  }

  const ConfigReader& config_;
  const ModelType& type_;
  std::vector<Layer> layers_;
  const int64_t positions_;
  int64_t window_ = 0;
};

}  // namespace

void read_layers(const ConfigReader& config, const ModelType& type, Model& model) {
  LayerReader reader(config, type, model);
  const std::vector<Layer> layers = reader.run();
  const RopeForms forms = read_rope(config, type, model, std::ranges::any_of(layers, &Layer::has_window));
  for (const Layer& layer : layers) {
    LayerKind kind{.name = std::string(layer.has_window ? "window" : "full") + (layer.has_rope ? "" : "_no_rope"),
                   .window = layer.has_window ? reader.window() : 0,
                   .has_rope = layer.has_rope};
    if (kind.has_rope) kind.rope = layer.has_window ? forms.window : forms.full;
    const auto at = std::ranges::find(model.kinds, kind);
    model.kind_of_layer.push_back(static_cast<int>(at - model.kinds.begin()));
    if (at == model.kinds.end()) model.kinds.push_back(kind);
  }
  if (model.kinds.size() == 1) model.kinds.front().name.clear();
}

}  // namespace seqtile::models
