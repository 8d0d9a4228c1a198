// c_api/status.h -- errors of the C interface: every function catches, keeps the text, returns a status.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "seqtile.h"
#include "seqtile/error.h"

namespace seqtile::c_api {

/// Keeps the text as this thread's last error.
seqtile_status failed(seqtile_status status, std::string_view text) noexcept;
seqtile_status status_of(ErrorCode code);

/// Runs the body of a function of the interface.
template <class Body>
seqtile_status guarded(Body&& body) noexcept {
  try {
    body();
    return SEQTILE_OK;
  } catch (const Error& error) {
    return failed(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(SEQTILE_OUT_OF_RESOURCES, "no memory for an object of the interface");
  } catch (const std::exception& error) {
    return failed(SEQTILE_INTERNAL, error.what());
  } catch (...) {
    return failed(SEQTILE_INTERNAL, "an exception that is no std::exception");
  }
}

/// Errors: invalid_argument where `pointer` is null.
template <class T>
T& required(T* pointer, const char* name) {
  if (!pointer) throw Error(ErrorCode::invalid_argument, std::string(name) + " is null");
  return *pointer;
}

/// Gives the caller a text of its own, to be freed by seqtile_text_free().
char* new_text(const std::string& text);

}  // namespace seqtile::c_api
