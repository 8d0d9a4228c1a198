// autotune/call/device_mirror.cpp -- see device_mirror.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/device_mirror.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "jit/base/assert.h"
#include "jit/simulation.h"

namespace seqtile::autotune {

void DeviceMirror::add(std::span<std::byte> host, const std::string& name, bool holds_addresses) {
  const auto is_known = [&](const Part& part) {
    return part.host.data() == host.data() && part.host.size() >= host.size();
  };
  if (is_host_ || std::any_of(parts_.begin(), parts_.end(), is_known)) return;
  constexpr uintptr_t kPeriod = 256;
  Part part{host, DeviceBuffer(device_.memory(), host.size() + kPeriod), nullptr, holds_addresses};
  part.device = static_cast<std::byte*>(part.memory.data()) + reinterpret_cast<uintptr_t>(host.data()) % kPeriod;
  name_memory(device_, part.memory.data(), name);
  parts_.push_back(std::move(part));
}

void DeviceMirror::upload() {
  for (const Part& part : parts_) upload(part.host);
}

void DeviceMirror::upload(std::span<const std::byte> host) {
  if (is_host_) return;
  std::vector<std::byte> words;
  if (part_of(host.data()).holds_addresses) {
    words.assign(host.begin(), host.end());
    translate(words, Side::device);
  }
  device_.memory().copy(at(host.data()), words.empty() ? host.data() : words.data(), host.size());
  device_.streams().synchronize({});  // launches on other streams are not ordered after the copy
}

/// Replaces each word that is an address of mirrored memory by the address on side `to`.
void DeviceMirror::translate(std::span<std::byte> words, Side to) const {
  for (size_t i = 0; i + sizeof(uintptr_t) <= words.size(); i += sizeof(uintptr_t)) {
    uintptr_t word = 0;
    std::memcpy(&word, &words[i], sizeof word);
    for (const Part& part : parts_) {
      auto old_base = reinterpret_cast<uintptr_t>(part.host.data()), base = reinterpret_cast<uintptr_t>(part.device);
      if (to == Side::host) std::swap(old_base, base);
      if (word < old_base || word - old_base >= part.host.size()) continue;
      word = base + (word - old_base);
      std::memcpy(&words[i], &word, sizeof word);
      break;
    }
  }
}

void DeviceMirror::download() {
  device_.streams().synchronize({});
  for (const Part& part : parts_) device_.memory().copy(part.host.data(), part.device, part.host.size());
  device_.streams().synchronize({});
  for (const Part& part : parts_)
    if (part.holds_addresses) translate(part.host, Side::host);
}

const DeviceMirror::Part& DeviceMirror::part_of(const void* host) const {
  const auto* wanted = static_cast<const std::byte*>(host);
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) {
    return wanted >= part.host.data() && wanted <= part.host.data() + part.host.size();
  });
  SEQTILE_ASSERT(found != parts_.end());
  return *found;
}

void* DeviceMirror::at(const void* host) const {
  if (is_host_ || !host) return const_cast<void*>(host);
  const Part& part = part_of(host);
  return part.device + (static_cast<const std::byte*>(host) - part.host.data());
}

std::vector<Tensor> DeviceMirror::at(std::span<const Tensor> tensors) const {
  std::vector<Tensor> moved(tensors.begin(), tensors.end());
  for (Tensor& tensor : moved) tensor.data = at(tensor.data);
  return moved;
}

}  // namespace seqtile::autotune
