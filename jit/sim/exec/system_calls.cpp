// jit/sim/exec/system_calls.cpp -- functions that a device provides to kernels: printf and failed assertions.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

constexpr size_t kMaxText = 2000;  ///< bytes of one line

/// One conversion of a format: "%-8.3f" with its letter, and whether its argument has 8 bytes.
struct Conversion {
  std::string flags;  ///< between the '%' and the length
  char letter = '\0';
  bool is_long = false;
};

/// Reads the conversion that begins at format[at], and goes behind it.
Conversion read_conversion(const std::string& format, size_t& at) {
  Conversion result;
  for (++at; at < format.size() && std::strchr("-+ #0123456789.", format[at]) != nullptr; ++at)
    result.flags += format[at];
  for (; at < format.size() && std::strchr("hlLqjzt", format[at]) != nullptr; ++at)
    result.is_long |= format[at] != 'h' && format[at] != 'L';
  if (at < format.size()) result.letter = format[at++];
  return result;
}

std::string convert(const Conversion& conversion, uint64_t value) {
  char text[kMaxText];
  const std::string start = "%" + conversion.flags;
  const bool is_signed = conversion.letter == 'd' || conversion.letter == 'i';
  if (std::strchr("diouxXc", conversion.letter) != nullptr && conversion.letter != 'c') {
    if (!conversion.is_long)
      value = is_signed ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(value)))
                        : static_cast<uint32_t>(value);
    std::snprintf(text, sizeof(text), (start + "ll" + conversion.letter).c_str(), static_cast<long long>(value));
  } else if (std::strchr("fFeEgGaA", conversion.letter) != nullptr) {
    std::snprintf(text, sizeof(text), (start + conversion.letter).c_str(), std::bit_cast<double>(value));
  } else if (conversion.letter == 'c') {
    std::snprintf(text, sizeof(text), (start + "c").c_str(), static_cast<int>(value));
  } else {
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  }
  return text;
}

}  // namespace

/// An argument that lies in the caller's frame.
uint64_t Cohort::argument(const Warp& warp, const Instruction& i, size_t number, int lane) const {
  const Program& program = *warp.grid->program;
  const Call& call = program.calls[i.aux];
  uint64_t value = 0;
  if (number >= call.arguments.size()) return value;
  const CallMove& move = call.arguments[number];
  const std::byte* stack = warp.local.data() + static_cast<int64_t>(lane) * program.local_bytes;
  std::memcpy(&value, stack + warp.frame_base[lane] + move.of_caller,
              static_cast<size_t>(std::min<int64_t>(move.bytes, 8)));
  return value;
}

/// The characters at a generic address, up to the zero.
std::string Cohort::text_at(Warp& warp, uint64_t address, const Site& site) {
  std::string text;
  Instruction load;
  load.width = 1;
  while (text.size() < kMaxText) {
    uint64_t plain = address + text.size();
    const PtxSpace space = space_of(load, plain);
    const std::byte* at = space == PtxSpace::local    ? local(warp, plain, 1, site)
                          : space == PtxSpace::shared ? shared(cta_of(warp), static_cast<uint32_t>(plain), 1, 1, site)
                                                      : global(warp, plain, 1, 1, site, false);
    if (at == refused_ || *at == std::byte{0}) break;
    text += static_cast<char>(*at);
  }
  return text;
}

/// vprintf(format, arguments): the second points to a buffer in which each argument has its own alignment.
void Cohort::print(Warp& warp, const Instruction& i, uint32_t mask) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const std::string format = text_at(warp, argument(warp, i, 0, lane), site);
    uint64_t next = argument(warp, i, 1, lane);
    const auto take = [&](uint64_t bytes) {
      next = (next + bytes - 1) / bytes * bytes;
      uint64_t plain = std::exchange(next, next + bytes), value = 0;
      space_of(Instruction(), plain);
      std::memcpy(&value, local(warp, plain, static_cast<uint32_t>(bytes), site), bytes);
      return value;
    };
    std::string line;
    for (size_t at = 0; at < format.size() && line.size() < kMaxText;) {
      if (format[at] != '%') line += format[at++];
      else if (format.compare(at, 2, "%%") == 0) line += '%', at += 2;
      else {
        const Conversion conversion = read_conversion(format, at);
        const bool has_8_bytes = conversion.is_long || std::strchr("fFeEgGaAps", conversion.letter) != nullptr;
        const uint64_t value = take(has_8_bytes ? 8 : 4);
        line += conversion.letter == 's' ? text_at(warp, value, site) : convert(conversion, value);
      }
    }
    const std::lock_guard lock(context_.print_mutex);
    if (context_.num_printed++ < kMaxPrinted) context_.printed.push_back(line);
  }
  // printf's result: nothing has failed
  const Call& call = warp.grid->program->calls[i.aux];
  const int64_t stack = warp.grid->program->local_bytes;
  for (const CallMove& move : call.results)
    for_lanes(mask, [&](int lane) {
      std::byte* frame = warp.local.data() + lane * stack + warp.frame_base[lane];
      if (move.operand < 0) std::memset(frame + move.of_caller, 0, static_cast<size_t>(move.bytes));
    });
}

/// __assertfail(condition, file, line, function, size of a character)
void Cohort::assert_fail(Warp& warp, const Instruction& i, uint32_t mask) {
  const int lane = std::countr_zero(mask);
  const Site site{&warp, i.line, lane};
  report(ReportKind::trap, site,
         fmt::format("the assertion `{}` fails, {}:{} in {}", text_at(warp, argument(warp, i, 0, lane), site),
                     text_at(warp, argument(warp, i, 1, lane), site), static_cast<uint32_t>(argument(warp, i, 2, lane)),
                     text_at(warp, argument(warp, i, 3, lane), site)));
  is_stopped_ = true;
}

}  // namespace seqtile::sim
