//! One path for everybody: route, policies and upstream compare and receive what [`normalize`] returns, so that no two of
//! them can read one request differently. What could be read in two ways is refused. The edge calls this first.

/// Why a path has no single meaning; the client is answered 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousPath {
    /// It does not begin with `/`.
    #[error("the path is not absolute")]
    NotAbsolute,
    /// `%` without two hex digits.
    #[error("the path has a broken percent escape")]
    BrokenEscape,
    /// Its bytes are not UTF-8; overlong forms of `/` and `.` are among these.
    #[error("the path is not UTF-8")]
    NotUtf8,
    /// `%2f`: some servers take it for `/`, some do not.
    #[error("the path has an escaped slash")]
    EscapedSlash,
    /// `\` or `%5c`: some servers take it for `/`.
    #[error("the path has a backslash")]
    Backslash,
    /// NUL or another control character: some servers end the path there.
    #[error("the path has a control character")]
    Control,
    /// `..;x`, `.;x` or `;x`: servers with path parameters see `..`, `.` or nothing.
    #[error("the path hides a dot segment behind a parameter")]
    HiddenDots,
    /// `?` or `#`: whoever called did not split the target.
    #[error("the path contains a query or a fragment")]
    NotOnlyPath,
}

/// The one spelling of `raw_path` (the request target without query).
///
/// Escapes are decoded, except those of `%`, `?` and `#`, which stay escaped in upper case so that the result still has one
/// meaning; dot segments are resolved, never above the root; empty segments are dropped, so `//admin` is `/admin`. A
/// final slash stays. Normalising the result again changes nothing.
///
/// # Errors
/// [`AmbiguousPath`] when parts of a deployment could disagree about the path.
pub fn normalize(raw_path: &str) -> Result<String, AmbiguousPath> {
    let decoded = decode(raw_path)?;
    let rest = decoded.strip_prefix('/').ok_or(AmbiguousPath::NotAbsolute)?;
    let mut kept: Vec<&str> = Vec::new();
    for segment in rest.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            _ if matches!(segment.split_once(';'), Some(("" | "." | "..", _))) => return Err(AmbiguousPath::HiddenDots),
            _ => kept.push(segment),
        }
    }
    let names_folder = matches!(rest.rsplit('/').next(), Some("" | "." | ".."));
    let tail = if names_folder && !kept.is_empty() { "/" } else { "" };
    Ok(format!("/{}{tail}", kept.join("/")))
}

/// `normalized` as it travels in a request target: everything that may not stand there is escaped.
#[must_use]
pub fn to_uri(normalized: &str) -> String {
    let mut uri = String::with_capacity(normalized.len());
    for byte in normalized.bytes() {
        // RFC 3986, 3.3: pchar, plus the separator, plus the `%` of escapes that normalisation kept.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            escape(byte, |byte| uri.push(char::from(byte)));
        }
    }
    uri
}

fn decode(raw: &str) -> Result<String, AmbiguousPath> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => match unescape(bytes.next(), bytes.next())? {
                b'/' => return Err(AmbiguousPath::EscapedSlash),
                reserved @ (b'%' | b'?' | b'#') => escape(reserved, |byte| decoded.push(byte)),
                plain => decoded.push(plain),
            },
            b'?' | b'#' => return Err(AmbiguousPath::NotOnlyPath),
            plain => decoded.push(plain),
        }
    }
    let decoded = String::from_utf8(decoded).map_err(|_| AmbiguousPath::NotUtf8)?;
    if decoded.contains('\\') {
        return Err(AmbiguousPath::Backslash);
    }
    if decoded.contains(char::is_control) {
        return Err(AmbiguousPath::Control);
    }
    Ok(decoded)
}

fn unescape(high: Option<u8>, low: Option<u8>) -> Result<u8, AmbiguousPath> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok());
    let (high, low) = digit(high).zip(digit(low)).ok_or(AmbiguousPath::BrokenEscape)?;
    Ok(high << 4 | low)
}

fn escape(byte: u8, mut push: impl FnMut(u8)) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    push(b'%');
    push(DIGITS[usize::from(byte >> 4)]);
    push(DIGITS[usize::from(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AmbiguousPath, normalize, to_uri};

    #[test]
    fn spells_every_harmless_form_of_a_path_the_same() {
        for (raw, path) in [
            ("/", "/"),
            ("/admin", "/admin"),
            ("//admin", "/admin"),
            ("///", "/"),
            ("/a/..//admin", "/admin"),
            ("/%2e%2e/admin", "/admin"),
            ("/%2E/%2e./admin", "/admin"),
            ("/../../admin", "/admin"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/a/..", "/"),
            ("/a/", "/a/"),
            ("/%61dm%69n", "/admin"),
            ("/a%2Bb", "/a+b"),
            ("/a%20b", "/a b"),
            ("/%e4%bd%a0", "/你"),
            ("/...", "/..."),
            ("/.hidden", "/.hidden"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/100%25", "/100%25"),
            ("/%252e%252e/admin", "/%252e%252e/admin"),
            ("/%252f", "/%252f"),
            ("/what%3f%23", "/what%3F%23"),
        ] {
            assert_eq!(normalize(raw).as_deref(), Ok(path), "{raw}");
        }
    }

    #[test]
    fn refuses_what_two_readers_could_read_differently() {
        use AmbiguousPath::{Backslash, BrokenEscape, Control, EscapedSlash, HiddenDots, NotAbsolute, NotOnlyPath, NotUtf8};
        for (raw, reason) in [
            ("", NotAbsolute),
            ("*", NotAbsolute),
            ("admin", NotAbsolute),
            ("http://shop/admin", NotAbsolute),
            ("/a%2f..%2fadmin", EscapedSlash),
            ("/%2Fadmin", EscapedSlash),
            ("\\admin", Backslash),
            ("/\\admin", Backslash),
            ("/..\\admin", Backslash),
            ("/a%5c..%5Cadmin", Backslash),
            ("/pub/..;/admin", HiddenDots),
            ("/pub/..;x=1/admin", HiddenDots),
            ("/pub/%2e%2e%3b/admin", HiddenDots),
            ("/pub/.;/admin", HiddenDots),
            ("/;/admin", HiddenDots),
            ("/admin%00", Control),
            ("/admin%00.png", Control),
            ("/admin\u{7f}", Control),
            ("/admin%0d%0aHost:%20evil", Control),
            ("/admin%c2%80", Control),
            ("/%", BrokenEscape),
            ("/%4", BrokenEscape),
            ("/%g1", BrokenEscape),
            ("/%+1", BrokenEscape),
            ("/%u002f", BrokenEscape),
            ("/%c0%af", NotUtf8),
            ("/%c0%ae%c0%ae/admin", NotUtf8),
            ("/%ff", NotUtf8),
            ("/a?b", NotOnlyPath),
            ("/a#b", NotOnlyPath),
        ] {
            assert_eq!(normalize(raw), Err(reason), "{raw}");
        }
    }

    #[test]
    fn escapes_for_the_upstream_only_what_must_be() {
        for (path, uri) in
            [("/a+b;c=d", "/a+b;c=d"), ("/a b", "/a%20b"), ("/你", "/%E4%BD%A0"), ("/100%25", "/100%25"), ("/{x}", "/%7Bx%7D")]
        {
            assert_eq!(to_uri(path), uri);
        }
    }

    /// Paths made of the pieces that matter, and of anything.
    fn paths() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            proptest::sample::select(vec!["/", "//", ".", "..", "%2e", "%2E", "%25", "%3f", ";", "a", "%61", "%20", "%c3%a9", "é", "%"])
                .prop_map(str::to_owned),
            any::<char>().prop_map(String::from),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        #[test]
        fn normalising_twice_is_normalising_once(raw in paths()) {
            if let Ok(path) = normalize(&raw) {
                prop_assert_eq!(normalize(&path), Ok(path));
            }
        }

        #[test]
        fn a_normal_path_keeps_its_promises(raw in paths()) {
            if let Ok(path) = normalize(&raw) {
                prop_assert!(path.starts_with('/'));
                prop_assert!(!path.contains("//") && !path.contains('\\') && !path.contains(char::is_control));
                prop_assert!(path.split('/').all(|segment| segment != "." && segment != ".."));
            }
        }

        #[test]
        fn the_upstream_reads_the_same_path(raw in paths()) {
            if let Ok(path) = normalize(&raw) {
                let uri = to_uri(&path);
                prop_assert!(uri.is_ascii() && !uri.contains([' ', '?', '#']));
                prop_assert_eq!(normalize(&uri), Ok(path));
            }
        }
    }
}
