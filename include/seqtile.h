// include/seqtile.h -- the C interface: engines, prepared operations, ranks; tensors by DLPack.
// SPDX-License-Identifier: Apache-2.0
/*
 *   seqtile_engine* engine = NULL;
 *   seqtile_op* norm = NULL;
 *   if (seqtile_engine_open("{\"cache\": \"tuning.db\"}", &engine) ||
 *       seqtile_engine_prepare(engine, "rms_norm", "{\"n\": 4096, \"dtype\": \"bf16\"}", &norm))
 *     fprintf(stderr, "%s\n", seqtile_last_error());
 *   const DLTensor* tensors[] = {&x, &weight, &y};
 *   seqtile_op_call(norm, tensors, 3, SEQTILE_LENGTH_OF_TENSORS, NULL);
 *
 * Every function that can fail returns a status; seqtile_last_error() has the text. Nothing is thrown, and no function
 * ends the process. All functions may be called from any thread; functions of one channel, and calls of its operations,
 * must not overlap. A null pointer where an object or a text is required
 * is SEQTILE_INVALID_ARGUMENT.
 *
 * Objects count references. An object keeps alive what it needs: an operation its engine and channel, a channel its
 * fabric. So objects may be released in any order; a release of NULL does nothing. The process may exit while threads
 * are inside calls.
 *
 * Texts go in as UTF-8 that ends with a zero byte. Texts that come out as `char**` are JSON, and the caller frees them
 * by seqtile_text_free(). Output pointers are NULL after an error.
 */
#ifndef SEQTILE_H_
#define SEQTILE_H_

#include <stddef.h>
#include <stdint.h>

/* DLTensor is the package's own header where there is one. The declarations below are the same in memory. */
#if !defined(DLPACK_VERSION) && !defined(DLPACK_MAJOR_VERSION) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_VERSION) && !defined(DLPACK_MAJOR_VERSION)
/* DLPack (https://github.com/dmlc/dlpack), Apache-2.0: one tensor in memory. A program that has its own copy of the
 * header includes that before this one. */
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U, kDLBool = 6U } DLDataTypeCode;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: dense and row-major */
  uint64_t byte_offset;
} DLTensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function of this header changes in a way that compiled programs notice. */
#define SEQTILE_ABI_VERSION 0

typedef enum seqtile_status {
  SEQTILE_OK = 0,
  SEQTILE_INVALID_ARGUMENT = 1, /* a value is out of its range; the text names value and limit */
  SEQTILE_UNSUPPORTED = 2,      /* a legal request that this build or machine cannot serve */
  SEQTILE_COMPILE_FAILED = 3,   /* machine code cannot be made */
  SEQTILE_OUT_OF_RESOURCES = 4, /* memory, disk or registers */
  SEQTILE_DRIVER = 5,           /* a device driver refused */
  SEQTILE_IO = 6,               /* a file could not be read or written, or a program did not end as it should */
  SEQTILE_TIMEOUT = 7,          /* a deadline passed */
  SEQTILE_ABORTED = 8,          /* interrupted by the user or by a peer */
  SEQTILE_WRONG_RESULT = 9,     /* a verification failed */
  SEQTILE_NO_RECORD = 10,       /* a call under the policy "strict" at a length without a record */
  SEQTILE_INTERNAL = 11         /* a fault of the library */
} seqtile_status;

typedef struct seqtile_engine seqtile_engine;   /* serves operations on one device from the stores of one cache */
typedef struct seqtile_op seqtile_op;           /* an operation with its static fields, ready to be called */
typedef struct seqtile_fabric seqtile_fabric;   /* one rank's end of a group of ranks */
typedef struct seqtile_channel seqtile_channel; /* memory that the launches of a group's ranks share */

/* The version of the library, "0.1.0". */
const char* seqtile_version(void);
/* SEQTILE_ABI_VERSION of the library that is loaded. */
int32_t seqtile_abi_version(void);
/* The status's name, "invalid_argument"; "unknown" for other numbers. */
const char* seqtile_status_name(int32_t status);
/* The text of this thread's last error, one line; empty where there was none. It is valid until the thread's next call
 * that fails. */
const char* seqtile_last_error(void);
/* Frees a text that a function of this header has returned. */
void seqtile_text_free(char* text);

/* Log lines go to `log` instead of standard error: 0 warnings, 1 devices and stores, 2 refused candidates, as far as
 * the environment's SEQTILE_LOG asks for them. `log` is called from any thread, perhaps from several at once; it must
 * neither call this library nor wait for a thread that is inside it, nor end its thread. A null `log` is standard
 * error again. When the function returns, no thread is inside the former function. */
typedef void (*seqtile_log_function)(void* context, int32_t level, const char* line);
void seqtile_set_log(seqtile_log_function log, void* context);

/* The operations of the library: [{"operation", "summary", "over_ranks", "fields": [{"field", "values", "default",
 * "required"}]}]. */
seqtile_status seqtile_operations(char** json);

/* Opens an engine. `options_json` is an object with any of these, or NULL:
 *   "device"         "cpu" (the default), "cuda:0"; "h200" and other profiles and "sim:sm_80" are explained but not
 *                    called, as no DLTensor is in their memory
 *   "threads"        threads of one call on CPUs; 0: all cores that the process may use, or with the pool "openmp"
 *                    as many as OpenMP takes by itself. Part of every key: records of two threads serve no four.
 *   "pool"           whose threads: "own" (the default), "openmp", those of the OpenMP library that the process has
 *                    loaded, or "auto", OpenMP's where there is one. A process whose other operators run on OpenMP, as
 *                    PyTorch's do, needs them: two pools wait against each other.
 *   "cache"          path of the tuning store; "": the user's default file
 *   "artifacts"      path of the store of binaries; "": the user's default file
 *   "system_caches"  paths of read-only tuning stores, searched after "cache"
 *   "pinned"         path of a tuning store whose records win over all others
 *   "policy"         of a call without a record: "strict" "default" "nearest" (the default) "background" "tune". The
 *                    last two need the path of the program seqtile in the environment's SEQTILE_WORKER.
 *   "max_length"     longer calls are refused; 0: no limit
 * Errors: invalid_argument (options), unsupported (the device; no OpenMP library). A store that cannot be read is a
 * miss, not an error. */
seqtile_status seqtile_engine_open(const char* options_json, seqtile_engine** engine);
/* The same on the device of the fabric's rank, with the rank's number of threads; there are no options "device" and
 * "pool". */
seqtile_status seqtile_engine_open_on(const char* options_json, seqtile_fabric* fabric, seqtile_engine** engine);
/* Reads the stores again and swaps the plans of all prepared operations. */
seqtile_status seqtile_engine_refresh(seqtile_engine* engine);
/* {"hits", "launches", "misses_no_record", "misses_above_top", "compiles", "compiles_at_load", "tunings", "bad_rows",
 * "bad_files", "busy"}. */
seqtile_status seqtile_engine_counters(seqtile_engine* engine, char** json);
/* Writes the buckets of lengths that calls have missed, for `seqtile prewarm --misses`. Errors: io. */
seqtile_status seqtile_engine_write_misses(seqtile_engine* engine, const char* path);
void seqtile_engine_retain(seqtile_engine* engine);
void seqtile_engine_release(seqtile_engine* engine);

/* Fixes the static fields of an operation and loads or compiles what its calls may need. `fields_json` is an object of
 * the fields that seqtile_operations() lists, and "dtype" ("f32" "bf16" "f16"; "f32" is the default); NULL is {}.
 * Errors: invalid_argument (unknown operation or field, a value out of its range), compile_failed. */
seqtile_status seqtile_engine_prepare(seqtile_engine* engine, const char* operation, const char* fields_json,
                                      seqtile_op** op);
/* The same for an operation over ranks, whose engine is open on the channel's fabric. Collective: all ranks of the
 * channel call it in the same order, between calls. "world_size" and "fabric" are the channel's.
 * Errors, the same on all ranks: as above, and invalid_argument where a field is not rank 0's. An engine on another
 * fabric is invalid_argument at once. */
seqtile_status seqtile_engine_prepare_on(seqtile_engine* engine, const char* operation, const char* fields_json,
                                         seqtile_channel* channel, seqtile_op** op);
void seqtile_op_retain(seqtile_op* op);
void seqtile_op_release(seqtile_op* op);

/* The length is the size of the first dimension that says it. */
#define SEQTILE_LENGTH_OF_TENSORS (-1)

/* Calls the operation: one launch. `tensors` are those that seqtile_op_describe() lists, in that order. `length` is the
 * bucketed dimension, over ranks the rows of all ranks; it must be given where no tensor has it as a size. A length
 * of 0 with outputs that have no elements does nothing, and is no error. `stream` is a CUstream of a GPU; CPUs take
 * NULL. On CPUs the call returns when it is done; on GPUs when the stream has it.
 * Tensors: on the engine's device; strides NULL or in elements, innermost 1, those of rows also negative and, of
 * inputs, 0; byte_offset is added; no pointer where there are no elements. Memory that CUDA has pinned or manages is on
 * both sides. A CPU has one memory, whatever device_id says. Nothing of a DLTensor is kept.
 * Errors: invalid_argument: device, dtype, shape, stride, alignment, overlap, an element of an index tensor, the
 * length; no_record under "strict"; out_of_resources: no memory for a workspace; unsupported, driver: the device. A
 * call that is refused writes nothing. Inputs are never written. */
seqtile_status seqtile_op_call(const seqtile_op* op, const DLTensor* const* tensors, int32_t num_tensors,
                               int64_t length, void* stream);
/* {"operation", "dtype", "fields": {..}, "tensors": [{"name", "role", "dtype", "shape", "in_place"}]} without the
 * tensors that a channel adds. Role: "input" "weight" "output". A shape has numbers and symbols: [4096, "length",
 * "batch + 1"]. An output's "in_place" names the inputs that may be the same tensor. */
seqtile_status seqtile_op_describe(const seqtile_op* op, char** json);
/* The bucket, configuration and origin that serve a length: {"bucket": [lo, hi], "origin", "config": {..},
 * "median_us", "reason"}.
 * Errors: invalid_argument on a length below 1 or above "max_length". */
seqtile_status seqtile_op_explain(const seqtile_op* op, int64_t length, char** json);

/* Ranks of this process, each for a thread of its own, as they wait for each other, and each with `threads` threads for
 * its calls. `fabrics`: room for `world_size` pointers; fabrics[i] is rank i's.
 * Errors: invalid_argument on a world size outside of 1..16, or on numbers of threads that no pool has. */
seqtile_status seqtile_fabric_open_threads(int32_t world_size, int32_t threads, seqtile_fabric** fabrics);
/* Makes the memory of a world whose ranks are processes. `descriptor` is a file descriptor for them to inherit, or to
 * open as /proc/PID/fd/N; the caller closes it when all ranks have joined.
 * Errors: invalid_argument (the world size), out_of_resources. */
seqtile_status seqtile_world_make(int32_t world_size, int32_t* descriptor);
/* Makes this process a rank of the world, with `threads` threads for its calls; returns when all ranks have joined.
 * Errors: invalid_argument (no world's descriptor, a rank that is taken or too large), timeout (names the ranks that
 * have not come within `timeout_seconds`; make a new world then), aborted (a rank has ended before). */
seqtile_status seqtile_fabric_join(int32_t descriptor, int32_t rank, int32_t threads, double timeout_seconds,
                                   seqtile_fabric** fabric);
/* {"kind", "rank", "world_size"}. */
seqtile_status seqtile_fabric_describe(seqtile_fabric* fabric, char** json);
void seqtile_fabric_retain(seqtile_fabric* fabric);
void seqtile_fabric_release(seqtile_fabric* fabric);

/* Collective: a channel for calls of at most `max_rows` rows of all ranks together. Its calls follow each other in the
 * same order on all ranks. `timeout_seconds` is how long a rank waits for its peers, in calls and in collective
 * functions: a rank whose call was refused does not come, and its peers wait so long. All ranks give the same numbers.
 * Errors, on all ranks alike: invalid_argument, out_of_resources, timeout. */
seqtile_status seqtile_channel_open(seqtile_fabric* fabric, int64_t max_rows, double timeout_seconds,
                                    seqtile_channel** channel);
/* Errors where a rank has given up, with the record of it: timeout, aborted, invalid_argument (ranks that called other
 * operations or lengths). Outputs of such calls are NaN. */
seqtile_status seqtile_channel_check(seqtile_channel* channel);
/* Collective, when no call is in flight: gives the channel new memory, in which nothing is aborted. */
seqtile_status seqtile_channel_reset(seqtile_channel* channel);
void seqtile_channel_retain(seqtile_channel* channel);
void seqtile_channel_release(seqtile_channel* channel);

#ifdef __cplusplus
}
#endif

#endif
