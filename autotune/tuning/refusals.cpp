// autotune/tuning/refusals.cpp -- see refusals.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuning/refusals.h"

#include <algorithm>

#include <fmt/format.h>

namespace seqtile::autotune {

std::string detail_of(const Verdict& verdict) {
  const size_t at = verdict.detail.starts_with("kernel ") ? verdict.detail.find(": ") : std::string::npos;
  return at == std::string::npos ? verdict.detail : verdict.detail.substr(at + 2);
}

bool Refusals::add(const Config& config, const Verdict& verdict) {
  const std::string detail = detail_of(verdict);
  std::string distinct = verdict.outcome + detail;
  std::erase_if(distinct, [](char c) { return '0' <= c && c <= '9'; });
  const auto known = std::ranges::find(reasons_, distinct, &Reason::distinct);
  if (known != reasons_.end()) return ++known->count, false;
  reasons_.push_back({std::move(distinct), verdict.outcome + ", " + detail, config.json(), 1});
  return true;
}

std::string Refusals::Reason::text() const {
  return fmt::format("{} {} (first {})", count, first_outcome, first_config);
}

std::string Refusals::text() const {
  std::string text;
  for (const Reason& reason : reasons_) text += (text.empty() ? "" : "; ") + reason.text();
  return text;
}

std::string Refusals::main_reason() const {
  const auto main = std::ranges::max_element(reasons_, {}, &Reason::count);
  return main == reasons_.end() ? "" : main->text();
}

}  // namespace seqtile::autotune
