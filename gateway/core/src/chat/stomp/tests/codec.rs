//! Frames in and out: each rule of the specifications, and what holds for all frames.

use proptest::prelude::*;

use crate::chat::stomp::{Command, Decoder, Frame, FrameFault, StompLimits, Version};

/// Everything `text` holds, read in one go, and the fault that ends it.
fn read(text: &str, version: Option<Version>) -> (Vec<Frame>, Option<FrameFault>) {
    read_parts(&[text], version)
}

fn read_parts(parts: &[&str], version: Option<Version>) -> (Vec<Frame>, Option<FrameFault>) {
    let mut decoder = Decoder::new(StompLimits::default());
    let mut frames = Vec::new();
    for part in parts {
        decoder.feed(part);
        loop {
            match decoder.next_frame(version) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(fault) => return (frames, Some(fault)),
            }
        }
    }
    (frames, None)
}

/// The only frame in `text`.
fn only(text: &str, version: Version) -> Frame {
    let (frames, fault) = read(text, Some(version));
    assert_eq!(fault, None, "{text:?}");
    let [frame] = <[Frame; 1]>::try_from(frames).unwrap_or_else(|frames| panic!("{text:?} is {frames:?}"));
    frame
}

fn fault(text: &str, version: Option<Version>) -> &'static str {
    let (frames, fault) = read(text, version);
    fault.unwrap_or_else(|| panic!("{text:?} is read as {frames:?}")).0
}

#[test]
fn a_frame_is_command_headers_and_body() {
    let frame = only("SEND\ndestination:/app/chat/9001\ncontent-type:text/plain\n\nhello queue a\0", Version::V12);
    assert_eq!(frame.command, Command::Send);
    assert_eq!(frame.header("destination"), Some("/app/chat/9001"));
    assert_eq!(frame.body, "hello queue a");
    assert_eq!(frame.header("receipt"), None);
}

#[test]
fn line_feeds_between_frames_are_heart_beats() {
    let (frames, fault) = read("\n\n\nACK\nid:1-2\n\n\0\n\nDISCONNECT\n\n\0\n", Some(Version::V12));
    assert_eq!(fault, None);
    assert_eq!(frames.iter().map(|frame| frame.command).collect::<Vec<_>>(), [Command::Ack, Command::Disconnect]);
}

#[test]
fn carriage_returns_end_lines_in_1_2_alone() {
    let crlf = "\r\nSEND\r\ndestination:/a\r\n\r\nbody\r\n\0\r\n";
    let frame = only(crlf, Version::V12);
    assert_eq!((frame.header("destination"), frame.body.as_str()), (Some("/a"), "body\r\n"));
    for version in [Version::V10, Version::V11] {
        assert_eq!(fault(crlf, Some(version)), "no such command");
        let frame = only("SEND\ndestination:/a\r\n\nx\0", version);
        assert_eq!(frame.header("destination"), Some("/a\r"), "in {version:?} it is part of the value");
    }
    let (frames, _) = read("CONNECT\r\naccept-version:1.2\r\n\r\n\0", None);
    assert_eq!(frames[0].header("accept-version"), Some("1.2"), "before a version is agreed on");
}

#[test]
fn escapes_are_those_of_the_version() {
    let text = "SEND\na\\cb:c\\nd\\\\e\n\n\0";
    for version in [Version::V11, Version::V12] {
        assert_eq!(only(text, version).headers, [("a:b".to_owned(), "c\nd\\e".to_owned())]);
    }
    assert_eq!(only(text, Version::V10).headers, [("a\\cb".to_owned(), "c\\nd\\\\e".to_owned())]);
    assert_eq!(only("SEND\na:\\r\n\n\0", Version::V12).header("a"), Some("\r"));
}

#[test]
fn undefined_escapes_are_fatal() {
    for (text, versions) in [
        ("SEND\na:\\t\n\n\0", &[Version::V11, Version::V12][..]),
        ("SEND\na:\\\n\n\0", &[Version::V11, Version::V12]),
        ("SEND\n\\x:1\n\n\0", &[Version::V11, Version::V12]),
        ("SEND\na:\\N\n\n\0", &[Version::V11, Version::V12]),
        ("SEND\na:\\r\n\n\0", &[Version::V11]),
    ] {
        for version in versions {
            assert_eq!(fault(text, Some(*version)), "a header holds an undefined escape", "{text:?}");
        }
    }
}

#[test]
fn the_first_frame_has_no_escapes() {
    let (frames, _) = read("CONNECT\nlogin:a\\cb\npasscode:\\t\n\n\0", None);
    assert_eq!((frames[0].header("login"), frames[0].header("passcode")), (Some("a\\cb"), Some("\\t")));
    let connected = Frame::new(Command::Connected).with("server", "a:b\\c");
    assert_eq!(connected.encode(Version::V12), "CONNECTED\nserver:a:b\\c\n\n\0");
    assert_eq!(Frame::new(Command::Message).with("x", "a:b\\c\n\r").encode(Version::V12), "MESSAGE\nx:a\\cb\\\\c\\n\\r\n\n\0");
}

#[test]
fn the_first_of_repeated_headers_counts() {
    assert_eq!(only("SEND\nfoo:World\nfoo:Hello\n\n\0", Version::V12).header("foo"), Some("World"));
    assert_eq!(only("SEND\ncontent-length:1\ncontent-length:3\n\na\0", Version::V12).body, "a");
}

#[test]
fn nothing_is_trimmed() {
    let frame = only("SEND\n key : value \nempty:\n\n  body  \0", Version::V12);
    assert_eq!(frame.header(" key "), Some(" value "));
    assert_eq!(frame.header("key"), None);
    assert_eq!(frame.header("empty"), Some(""));
    assert_eq!(frame.body, "  body  ");
}

#[test]
fn the_length_wins_over_a_nul() {
    let frame = only("SEND\ncontent-length:5\n\na\0b\0c\0", Version::V12);
    assert_eq!(frame.body, "a\0b\0c");
    assert_eq!(only("SEND\ncontent-length:6\n\n你好\0", Version::V12).body, "你好", "it counts bytes");
    assert_eq!(only("SEND\ncontent-length:0\n\n\0", Version::V12).body, "");
}

#[test]
fn what_is_no_frame_is_fatal() {
    for (text, what) in [
        ("HELLO\n\n\0", "no such command"),
        ("send\n\n\0", "no such command"),
        (" SEND\n\n\0", "no such command"),
        ("{\"type\":\"ping\"}\n", "no such command"),
        ("\0\n", "no such command"),
        ("SEND\nno colon\n\n\0", "a header has no colon"),
        ("SEND\n:value\n\n\0", "a header has no name"),
        ("SEND\na:b\0\n", "the frame ends inside its headers"),
        ("SEND\na:b\rc\n\n\0", "a header holds a carriage return"),
        ("SEND\ncontent-length:1\n\nab\0", "no NUL follows the body"),
        ("SEND\ncontent-length:2\n\n你\0", "no NUL follows the body"),
        ("SEND\ncontent-length:-1\n\n\0", "content-length is no number of bytes"),
        ("SEND\ncontent-length:+1\n\na\0", "content-length is no number of bytes"),
        ("SEND\ncontent-length: 1\n\na\0", "content-length is no number of bytes"),
        ("SEND\ncontent-length:\n\n\0", "content-length is no number of bytes"),
        ("SEND\ncontent-length:1e1\n\n\0", "content-length is no number of bytes"),
        ("SEND\ncontent-length:99999999999999999999999\n\n\0", "content-length is no number of bytes"),
        ("SEND\ncontent-length:65537\n\n", "the body is too large"),
        ("SUBSCRIBE\nid:1\n\nbody\0", "only SEND may have a body"),
        ("DISCONNECT\ncontent-length:1\n\nx\0", "only SEND may have a body"),
    ] {
        assert_eq!(fault(text, Some(Version::V12)), what, "{text:?}");
    }
}

#[test]
fn a_fault_is_final() {
    let mut decoder = Decoder::new(StompLimits::default());
    decoder.feed("NONSENSE\n\n\0SEND\n\n\0");
    let fault = decoder.next_frame(Some(Version::V12)).unwrap_err();
    decoder.feed("SEND\n\n\0");
    assert_eq!(decoder.next_frame(Some(Version::V12)), Err(fault));
}

#[test]
fn everything_has_a_limit() {
    let limits = StompLimits::default();
    let many = "a:b\n".repeat(limits.headers_max);
    assert_eq!(only(&format!("SEND\n{many}\n\0"), Version::V12).headers.len(), limits.headers_max);
    assert_eq!(fault(&format!("SEND\n{many}a:b\n\n\0"), Some(Version::V12)), "the frame has too many headers");
    let long = format!("a:{}", "x".repeat(limits.line_bytes_max - 2));
    assert_eq!(only(&format!("SEND\n{long}\n\n\0"), Version::V12).headers[0].1.len(), limits.line_bytes_max - 2);
    assert_eq!(fault(&format!("SEND\n{long}x\n\n\0"), Some(Version::V12)), "a line is too long");
    assert_eq!(fault(&format!("SEND\n{long}x"), Some(Version::V12)), "a line is too long", "also one without an end");
    assert_eq!(fault(&format!("SEND\n{long}\n{long}\n\n\0"), Some(Version::V12)), "the frame has too many headers");
    assert_eq!(fault(&"\u{1}".repeat(limits.line_bytes_max + 1), None), "a line is too long");
    let body = "x".repeat(limits.body_bytes_max);
    assert_eq!(only(&format!("SEND\n\n{body}\0"), Version::V12).body.len(), limits.body_bytes_max);
    assert_eq!(only(&format!("SEND\ncontent-length:{}\n\n{body}\0", body.len()), Version::V12).body.len(), limits.body_bytes_max);
    assert_eq!(fault(&format!("SEND\n\n{body}x\0"), Some(Version::V12)), "the body is too large");
    assert_eq!(fault(&format!("SEND\n\n{body}x"), Some(Version::V12)), "the body is too large", "before its end is seen");
}

#[test]
fn a_frame_may_come_in_chunks_of_eight_kibibytes() {
    let body = "好".repeat(20_000);
    let text = Frame::new(Command::Send).with("destination", "/app/chat/1").with_body("text/plain", body.as_str()).encode(Version::V12);
    let characters: Vec<char> = text.chars().collect();
    let chunks: Vec<String> = characters.chunks(8 * 1024).map(|chunk| chunk.iter().collect()).collect();
    let parts: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let (frames, fault) = read_parts(&parts, Some(Version::V12));
    assert_eq!((frames.len(), fault), (1, None));
    assert_eq!(frames[0].body, body);
}

#[test]
fn the_highest_version_in_common_is_spoken() {
    for (offered, agreed) in [
        (None, Some(Version::V10)),
        (Some("1.0"), Some(Version::V10)),
        (Some("1.1,1.0"), Some(Version::V11)),
        (Some("1.0,1.1,1.2"), Some(Version::V12)),
        (Some("1.2, 1.1"), Some(Version::V12)),
        (Some("1.3,1.1"), Some(Version::V11)),
        (Some("2.0"), None),
        (Some(""), None),
    ] {
        assert_eq!(Version::negotiate(offered), agreed, "{offered:?}");
    }
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V10), Just(Version::V11), Just(Version::V12)]
}

/// Frames that clients of every version can write: 1.0 knows no escapes, and no version takes NUL in a header.
fn frames() -> impl Strategy<Value = (Version, Vec<Frame>)> {
    let header = ("[a-z\\-\\\\:\n\r你]{1,8}", "[ a-zA-Z0-9:/\\\\\n\r好😀]{0,12}");
    let frame = (prop::collection::vec(header, 0..5), "[a-z\0\n\r:\\\\你😀]{0,40}");
    (versions(), prop::collection::vec(frame, 1..5)).prop_map(|(version, frames)| {
        let plain = |text: String| match version {
            Version::V10 => text.replace([':', '\n', '\r'], "-"),
            Version::V11 | Version::V12 => text,
        };
        let frames = frames.into_iter().map(|(headers, body)| {
            let mut frame = Frame::new(Command::Send).with_body("text/plain", body);
            frame.headers.extend(headers.into_iter().map(|(name, value)| (plain(name), plain(value))));
            frame
        });
        (version, frames.collect())
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read((version, frames) in frames()) {
        let text: String = frames.iter().map(|frame| frame.encode(version)).collect();
        prop_assert_eq!(read(&text, Some(version)), (frames, None));
    }

    #[test]
    fn where_the_stream_is_cut_does_not_matter((version, frames) in frames(), cuts in prop::collection::vec(1_usize..7, 1..50)) {
        let text: String = frames.iter().map(|frame| frame.encode(version)).collect();
        let characters: Vec<char> = text.chars().collect();
        let mut parts = Vec::new();
        let mut rest = characters.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, after) = rest.split_at((*cut).min(rest.len()));
            parts.push(part.iter().collect::<String>());
            rest = after;
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        prop_assert_eq!(read_parts(&parts, Some(version)), (frames, None));
    }

    #[test]
    fn any_text_is_read_alike_in_one_piece_and_in_single_characters(text in "(SEND|ACK|\n|\0|:|a|\\\\|\r|content-length:3){0,30}", version in versions()) {
        let whole = read(&text, Some(version));
        let characters: Vec<String> = text.chars().map(String::from).collect();
        let parts: Vec<&str> = characters.iter().map(String::as_str).collect();
        prop_assert_eq!(read_parts(&parts, Some(version)), whole);
    }
}
