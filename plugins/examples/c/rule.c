// Refuses clients that are on a list of the operator's: the rule of ../rust, in C.

#include "abi.h"

#define NAME_MAX 64

// A string constant as a text.
#define T(literal) ((text){ "" literal, sizeof(literal) - 1 })

// What the policy is configured with; static, because it outlives the call that brought it.
static struct { char bytes[NAME_MAX]; size_t length; } header = { "x-client-id", 11 }, list = { "block-clients", 13 };

static char problem[160];

static bool equal(text a, text b) {
    if (a.length != b.length) return false;
    for (size_t i = 0; i < a.length; i++)
        if (a.at[i] != b.at[i]) return false;
    return true;
}

static bool is_name(text name) {
    for (size_t i = 0; i < name.length; i++) {
        char c = name.at[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') return false;
    }
    return name.length >= 1 && name.length <= NAME_MAX;
}

// What is left of the document.
static text rest;

static void skip_space(void) {
    while (rest.length && (*rest.at == ' ' || *rest.at == '\n' || *rest.at == '\t' || *rest.at == '\r')) rest.at++, rest.length--;
}

static bool take(char c) {
    skip_space();
    if (!rest.length || *rest.at != c) return false;
    rest.at++, rest.length--;
    return true;
}

// A string without escapes; no name has one.
static bool take_string(text *into) {
    if (!take('"')) return false;
    into->at = rest.at;
    for (into->length = 0; rest.length; into->length++, rest.at++, rest.length--) {
        if (*rest.at == '\\') return false;
        if (*rest.at == '"') return rest.at++, rest.length--, true;
    }
    return false;
}

static text joined(text a, text b) {
    size_t length = 0;
    for (size_t i = 0; i < a.length && length < sizeof problem; i++) problem[length++] = a.at[i];
    for (size_t i = 0; i < b.length && length < sizeof problem; i++) problem[length++] = b.at[i];
    return (text){ problem, length };
}

// Reads `{"header": "…", "list": "…"}`; an empty text is the problem of a document that has none.
static text read_configuration(void) {
    const text malformed = T("configuration: not a JSON object of strings");
    skip_space();
    if (!rest.length) return (text){ 0 };
    if (!take('{')) return malformed;
    for (bool first = true; !take('}'); first = false) {
        text key, value;
        if ((!first && !take(',')) || !take_string(&key) || !take(':') || !take_string(&value)) return malformed;
        bool is_header = equal(key, T("header"));
        if (!is_header && !equal(key, T("list"))) return joined(T("configuration: unknown key "), key);
        if (!is_name(value)) return is_header ? T("header: not a header name in lower case") : T("list: not a list's name");
        char *bytes = is_header ? header.bytes : list.bytes;
        for (size_t i = 0; i < value.length; i++) bytes[i] = value.at[i];
        *(is_header ? &header.length : &list.length) = value.length;
    }
    skip_space();
    return rest.length ? malformed : (text){ 0 };
}

EXPORT("configure") configured *configure(const char *config, size_t length) {
    static configured answer;
    static text wanted[1];
    rest = (text){ config, length };
    text wrong = read_configuration();
    if (wrong.length) {
        answer = (configured){ .tag = ERROR, .error = wrong };
        return &answer;
    }
    wanted[0] = (text){ header.bytes, header.length };
    answer = (configured){
        .tag = OK,
        .ok = { .name = T("c"), .version = T("0.1.0"), .phases = ON_REQUEST, .headers = { wanted, 1 } },
    };
    return &answer;
}

static verdict *proceed(void) {
    static verdict answer;
    answer = (verdict){ .tag = PROCEED };
    return &answer;
}

// The first value of field `name` in a block of `name: value` lines.
static bool find_field(text block, text name, text *value) {
    for (size_t start = 0, end; start < block.length; start = end + 1) {
        for (end = start; end < block.length && block.at[end] != '\n'; end++) {}
        if (end - start >= name.length + 2 && equal((text){ block.at + start, name.length }, name)
            && block.at[start + name.length] == ':' && block.at[start + name.length + 1] == ' ') {
            *value = (text){ block.at + start + name.length + 2, end - start - name.length - 2 };
            return true;
        }
    }
    return false;
}

EXPORT("on-request") verdict *on_request(const request_call *call) {
    static text tags[1];
    text client;
    if (!find_field(call->request.headers, (text){ header.bytes, header.length }, &client)) {
        verdict *answer = proceed();
        tags[0] = T("no-client");
        answer->proceed.tags = (texts){ tags, 1 };
        return answer;
    }
    if (!lists_contains(list.bytes, list.length, client.at, client.length)) return proceed();
    static verdict refused;
    refused = (verdict){ .tag = REFUSE, .refuse = { .status = 403, .code = T("BLOCKED"), .message = T("this client is blocked") } };
    return &refused;
}

EXPORT("on-attempt") verdict *on_attempt(const attempt_call *call) { (void)call; return proceed(); }
EXPORT("on-message") verdict *on_message(const message_call *call) { (void)call; return proceed(); }
EXPORT("on-response") verdict *on_response(const response_call *call) { (void)call; return proceed(); }
