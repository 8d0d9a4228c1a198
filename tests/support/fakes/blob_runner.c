/* tests/support/fakes/blob_runner.c -- maps a CPU blob and runs its programs, for another architecture under qemu-user.
 * SPDX-License-Identifier: Apache-2.0
 *
 * blob_runner BLOB ENTRY_OFFSET ARENA_BYTES GRID0 GRID1 GRID2 FIRST COUNT SLOTS
 *
 * SLOTS is a text file with one argument slot a line: "value HEX" (the bits), or "memory FILE OFFSET" (the address of
 * that byte of the file; the file is mapped once and shared, so that it holds the kernel's writes afterwards). The
 * program is plain C, linked statically, and needs nothing of the emulated system. It exits with 0, or with 2 after a
 * line with the reason. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { max_slots = 256, max_files = 64, max_path = 512 };

struct mapping {
  char path[max_path];
  unsigned char *data;
};

typedef void (*program_fn)(const uint64_t *slots, const int64_t *pid, const int64_t *grid, unsigned char *arena);

static void fail(const char *what, const char *which) {
  fprintf(stderr, "blob_runner: %s: %s\n", what, which);
  exit(2);
}

static unsigned char *map_file(const char *path, size_t *size) {
  struct stat status;
  const int file = open(path, O_RDWR);
  if (file < 0 || fstat(file, &status) != 0) fail("cannot open", path);
  *size = (size_t)status.st_size;
  void *data = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) fail("cannot map", path);
  close(file);
  return data;
}

/* Code is copied to pages of its own: they become executable and are writable no more. */
static unsigned char *load_code(const char *path) {
  size_t size;
  unsigned char *file = map_file(path, &size);
  unsigned char *code = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) fail("cannot map code of", path);
  memcpy(code, file, size);
  if (mprotect(code, size, PROT_READ | PROT_EXEC) != 0) fail("cannot make executable", path);
  __builtin___clear_cache((char *)code, (char *)code + size);
  return code;
}

static unsigned char *find_mapping(struct mapping *mappings, int *count, const char *path) {
  for (int i = 0; i < *count; ++i)
    if (strcmp(mappings[i].path, path) == 0) return mappings[i].data;
  if (*count == max_files) fail("too many files", path);
  size_t size;
  struct mapping *added = &mappings[(*count)++];
  snprintf(added->path, max_path, "%s", path);
  added->data = map_file(path, &size);
  return added->data;
}

static void read_slots(const char *path, uint64_t *slots) {
  static struct mapping mappings[max_files];
  static char line[max_path + 64], file[max_path];
  int mapped = 0, count = 0;
  unsigned long long number;
  FILE *text = fopen(path, "r");
  if (!text) fail("cannot open", path);
  while (fgets(line, sizeof line, text)) {
    if (count == max_slots) fail("too many slots", path);
    if (sscanf(line, "value %llx", &number) == 1)
      slots[count++] = number;
    else if (sscanf(line, "memory %511s %llu", file, &number) == 2)
      slots[count++] = (uint64_t)(uintptr_t)(find_mapping(mappings, &mapped, file) + number);
    else
      fail("not a slot", line);
  }
  fclose(text);
}

int main(int argc, char **argv) {
  static uint64_t slots[max_slots];
  if (argc != 10) fail("expected 9 arguments", "BLOB ENTRY_OFFSET ARENA_BYTES GRID0 GRID1 GRID2 FIRST COUNT SLOTS");
  const unsigned char *code = load_code(argv[1]) + strtoull(argv[2], NULL, 10);
  const size_t arena_bytes = (strtoull(argv[3], NULL, 10) + 4095) / 4096 * 4096 + 4096;
  const int64_t grid[3] = {atoll(argv[4]), atoll(argv[5]), atoll(argv[6])};
  const int64_t first = atoll(argv[7]), count = atoll(argv[8]);
  read_slots(argv[9], slots);
  unsigned char *arena = mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (arena == MAP_FAILED) fail("cannot map the arena of", argv[1]);
  program_fn program;
  memcpy(&program, &code, sizeof program);
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t pid[3] = {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
    program(slots, pid, grid, arena);
  }
  return 0;
}
