// The world of ../../../wit in C, without a generator: records of the component model's canonical ABI are C structs with the
// same members, a variant is a tag and a union, and an option is a variant. What is larger than 16 words is passed by pointer.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(interface, name) __attribute__((import_module("sluice:policy/" interface "@0.1.1"), import_name(name)))

typedef struct { const char *at; size_t length; } text;
typedef struct { text *at; size_t length; } texts;

typedef struct { uint8_t some; text value; } optional_text;
typedef struct { uint8_t some; uint64_t value; } optional_u64;

enum role { USER, AGENT, ADMIN };

typedef struct { text id; uint8_t role; optional_u64 shop; texts scopes; uint64_t expires_ms; } principal;
typedef struct { uint8_t some; principal value; } optional_principal;

enum address_tag { V4, V6 };
typedef struct { uint8_t tag; union { uint32_t v4; struct { uint64_t upper, lower; } v6; }; } address;

typedef struct { uint64_t now_ms; optional_principal principal; optional_text device; texts tags; } facts;
typedef struct { text method, path; optional_text query; text host; address client; text route, headers; } request;
typedef struct { uint64_t activity, sku; uint32_t qty; optional_text idempotency_key; } attempt;
typedef struct { uint64_t session, shop; text kind, content; } message;
typedef struct { uint16_t status; text headers; } response;

typedef struct { uint16_t status; text code, message; optional_u64 retry_after_ms; } refusal;

enum scope { NODE, CLUSTER };
typedef struct {
    text budget, key;
    uint32_t limit, window_ms, cost;
    uint8_t scope;
    optional_text replay_token;
    refusal refusal;
} charge;

typedef struct { text name, value; } header_edit;
typedef struct { header_edit *at; size_t length; } header_edits;
typedef struct { charge *at; size_t length; } charges;

typedef struct {
    optional_principal principal;
    header_edits set_headers;
    texts remove_headers;
    charges charges;
    texts tags;
    uint8_t score;
    optional_text replace, reply;
} effects;

enum verdict_tag { REFUSE, PROCEED };
typedef struct { uint8_t tag; union { refusal refuse; effects proceed; }; } verdict;

enum phases { ON_REQUEST = 1, ON_ATTEMPT = 2, ON_MESSAGE = 4, ON_RESPONSE = 8 };
typedef struct { text name, version; uint8_t phases; texts headers; } manifest;

enum result_tag { OK, ERROR };
typedef struct { uint8_t tag; union { manifest ok; text error; }; } configured;

typedef struct { request request; facts facts; } request_call;
typedef struct { request request; facts facts; attempt attempt; } attempt_call;
typedef struct { facts facts; message message; } message_call;
typedef struct { request request; facts facts; response response; } response_call;

// Whether the text `key` is on `list`.
IMPORT("lists", "contains") bool lists_contains(const char *list, size_t list_length, const char *key, size_t key_length);
