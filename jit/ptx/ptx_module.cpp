// jit/ptx/ptx_module.cpp -- names and sizes of PTX types, look-ups in a module.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx/ptx_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace seqtile::sim {
namespace {

struct TypeFacts {
  std::string_view name;
  int bytes;
};

// In the order of PtxType.
constexpr std::array<TypeFacts, 27> kTypes = {{
    {"", 0},      {"pred", 1}, {"b8", 1},    {"b16", 2},  {"b32", 4},    {"b64", 8},    {"b128", 16},
    {"u8", 1},    {"u16", 2},  {"u32", 4},   {"u64", 8},  {"s8", 1},     {"s16", 2},    {"s32", 4},
    {"s64", 8},   {"f16", 2},  {"f16x2", 4}, {"bf16", 2}, {"bf16x2", 4}, {"tf32", 4},   {"f32", 4},
    {"f32x2", 8}, {"f64", 8},  {"e4m3", 1},  {"e5m2", 1}, {"e4m3x2", 2}, {"e5m2x2", 2},
}};

constexpr std::array<std::string_view, 7> kTargets = {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100"};

}  // namespace

std::string_view ptx_target_name(PtxTarget target) { return kTargets[static_cast<size_t>(target)]; }

std::string describe_lack(std::string_view what, PtxTarget needed, std::string_view stated) {
  return fmt::format("{} needs {}, the text says .target {}; have the text made for {}, or leave it out", what,
                     ptx_target_name(needed), stated, ptx_target_name(needed));
}

std::optional<PtxTarget> parse_ptx_target(std::string_view name) {
  for (size_t i = 0; i < kTargets.size(); ++i)
    if (kTargets[i] == name) return static_cast<PtxTarget>(i);
  // "sm_75", "sm_100a", "sm_120f"
  if (name.substr(0, 3) != "sm_") return {};
  int number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 3, end, number);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (error != std::errc() || number < 10 || number > 999 || (suffix != "" && suffix != "a" && suffix != "f"))
    return {};
  return number < 80 ? PtxTarget::sm_80 : number < 90 ? PtxTarget::sm_89 : PtxTarget::sm_100;
}

PtxType parse_ptx_type(std::string_view text) {
  for (size_t i = 1; i < kTypes.size(); ++i)
    if (kTypes[i].name == text) return static_cast<PtxType>(i);
  return PtxType::none;
}

std::string_view ptx_type_name(PtxType type) { return kTypes[static_cast<size_t>(type)].name; }

int ptx_type_bytes(PtxType type) { return kTypes[static_cast<size_t>(type)].bytes; }

std::string PtxRegister::full_name() const {
  return number < 0 ? std::string(name) : std::string(name) + std::to_string(number);
}

std::string_view PtxModule::line(int number) const {
  size_t start = 0;
  for (int i = 1; i < number; ++i) {
    start = text->find('\n', start);
    if (start == std::string::npos) return {};
    ++start;
  }
  const size_t end = std::min(text->find('\n', start), text->size());
  while (start < end && ((*text)[start] == ' ' || (*text)[start] == '\t')) ++start;
  return std::string_view(*text).substr(start, end - start);
}

const PtxKernel* PtxModule::find(std::string_view kernel) const {
  for (const PtxKernel& candidate : kernels)
    if (candidate.name == kernel) return &candidate;
  return nullptr;
}

const PtxKernel* PtxModule::find_function(std::string_view name) const {
  const auto alias = std::find_if(aliases.begin(), aliases.end(), [&](const auto& a) { return a.first == name; });
  if (alias != aliases.end()) name = alias->second;
  const PtxKernel* found = nullptr;
  for (const PtxKernel& candidate : functions)
    if (candidate.name == name && (found == nullptr || candidate.has_body)) found = &candidate;
  return found;
}

}  // namespace seqtile::sim
