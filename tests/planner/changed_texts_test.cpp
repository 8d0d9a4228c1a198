// tests/planner/changed_texts_test.cpp -- graphs and problems that are changed at random are read or refused.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/references/plan_text.h"

namespace seqtile::testing {
namespace {

using nlohmann::json;
using Random = std::mt19937;

size_t below(Random& random, size_t count) { return random() % count; }

/// Loses, doubles or changes bytes of the text, or cuts it off.
std::string changed_bytes(Random& random, std::string text) {
  constexpr std::string_view kBytes = "{}[]\",:0189-eE.nut\\ \n\xff";
  for (size_t count = 1 + below(random, 3); count-- > 0 && text.size() > 4;) {
    const size_t at = below(random, text.size()), length = 1 + below(random, std::min<size_t>(text.size() - at, 30));
    switch (below(random, 4)) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(below(random, text.size()), text.substr(at, length)); break;
      case 2: text[at] = kBytes[below(random, kBytes.size())]; break;
      default: text.resize(at); break;
    }
  }
  return text;
}

void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (value.is_structured())
    for (json& member : value) collect(member, all);
}

/// Swaps, doubles, loses or changes values, so that the text stays JSON.
std::string changed_values(Random& random, const std::string& text) {
  static const std::vector<json> kValues = {nullptr,
                                            true,
                                            0,
                                            -1,
                                            1,
                                            2,
                                            3,
                                            1e300,
                                            -0.5,
                                            int64_t{1} << 40,
                                            INT64_MAX,
                                            UINT64_MAX,
                                            "x",
                                            "y",
                                            "S01",
                                            "R",
                                            "",
                                            "a\nb",
                                            "torch.int8",
                                            json::array(),
                                            json::object(),
                                            {1, 2},
                                            {"x", "x"},
                                            {{"shape", {2}}, {"dtype", "torch.int8"}}};
  json root = json::parse(text);
  for (size_t count = 1 + below(random, 3); count-- > 0;) {
    std::vector<json*> all;
    collect(root, all);
    json& value = *all[below(random, all.size())];
    const json other = *all[below(random, all.size())];
    switch (below(random, 4)) {
      case 0: value = kValues[below(random, kValues.size())]; break;
      case 1: value = other; break;
      case 2:
        if (value.is_array()) value.push_back(other);
        else if (value.is_object()) value["more\t"] = other;
        break;
      default:
        if (value.is_structured() && !value.empty()) {
          auto at = value.begin();
          std::advance(at, static_cast<std::ptrdiff_t>(below(random, value.size())));
          value.erase(at);
        }
    }
  }
  return root.dump();
}

}  // namespace

TEST_CASE("plan graph: the texts that are changed are good ones", "[plan]") {
  for (const std::string& text : plan_texts()) {
    INFO(text);
    CHECK(take_plan_text(text));
  }
}

TEST_CASE("plan graph: a changed text is read or refused in one line", "[plan]") {
  const std::vector<std::string> texts = plan_texts();
  Random random(1);
  int taken = 0;
  constexpr int kTrials = 60000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::string& text = texts[below(random, texts.size())];
    const std::string changed = trial % 2 ? changed_values(random, text) : changed_bytes(random, text);
    try {
      taken += take_plan_text(changed);
    } catch (const std::exception& error) {
      FAIL("trial " << trial << ": " << error.what() << "\n" << changed);
    }
  }
  // Some of the changed texts are read, and some are refused.
  CHECK(taken > kTrials / 50);
  CHECK(taken < kTrials / 2);
}

}  // namespace seqtile::testing
