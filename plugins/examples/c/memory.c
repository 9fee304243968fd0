// The guest's memory: the host places the arguments of a call here, one after the other, and all of it is free again after
// the call. What outlives a call is static, so nothing is ever freed alone.

#include "abi.h"

#define PAGE 65536

extern unsigned char __heap_base;

static uintptr_t next;

EXPORT("cabi_realloc") void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
    uintptr_t at = ((next ? next : (uintptr_t)&__heap_base) + align - 1) & ~(align - 1);
    uintptr_t end = at + size, have = (uintptr_t)__builtin_wasm_memory_size(0) * PAGE;
    if (end < at) __builtin_trap();
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + PAGE - 1) / PAGE) == SIZE_MAX) __builtin_trap();
    next = end;
    for (size_t i = 0; i < old_size && i < size; i++) ((unsigned char *)at)[i] = ((unsigned char *)old)[i];
    return (void *)at;
}

static void forget(void) { next = (uintptr_t)&__heap_base; }

EXPORT("cabi_post_configure") void after_configure(configured *answer) { (void)answer; forget(); }
EXPORT("cabi_post_on-request") void after_request(verdict *answer) { (void)answer; forget(); }
EXPORT("cabi_post_on-attempt") void after_attempt(verdict *answer) { (void)answer; forget(); }
EXPORT("cabi_post_on-message") void after_message(verdict *answer) { (void)answer; forget(); }
EXPORT("cabi_post_on-response") void after_response(verdict *answer) { (void)answer; forget(); }

// The compiler calls these for copies and comparisons it does not write out.
void *memcpy(void *restrict to, const void *restrict from, size_t length) {
    for (size_t i = 0; i < length; i++) ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    return to;
}

void *memset(void *at, int byte, size_t length) {
    for (size_t i = 0; i < length; i++) ((unsigned char *)at)[i] = (unsigned char)byte;
    return at;
}
