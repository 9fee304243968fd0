//! Trace identity by W3C Trace Context: which trace a request belongs to, and what the upstream is told. The edge brings the
//! header and the random bytes; logs, decision records and `X-Trace-Id` use [`Trace::id`].

/// A request's place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    id: [u8; 16],
    /// The caller's span, when it told us.
    parent: Option<[u8; 8]>,
    /// Our span.
    span: [u8; 8],
    sampled: bool,
}

impl Trace {
    /// Continues the trace of a `traceparent` header, or starts a new one when there is none or it is not well-formed.
    /// Where a request has several such headers the caller passes `None` (Trace Context, 3.2.1). `random` must be fresh.
    #[must_use]
    pub fn begin(traceparent: Option<&str>, random: [u8; 24]) -> Self {
        let (mut id, mut span) = ([0; 16], [0; 8]);
        id.copy_from_slice(&random[..16]);
        span.copy_from_slice(&random[16..]);
        // All zeros mean "no id", and zeros are as likely as any other draw.
        let (id, span) = (if id == [0; 16] { [1; 16] } else { id }, if span == [0; 8] { [1; 8] } else { span });
        match traceparent.and_then(parse) {
            Some((id, parent, sampled)) => Self { id, parent: Some(parent), span, sampled },
            // Each request leaves a record here, so a trace that starts here counts as recorded.
            None => Self { id, parent: None, span, sampled: true },
        }
    }

    /// The trace's id: 32 lower-case hex digits.
    #[must_use]
    pub fn id(&self) -> String {
        hex(&self.id)
    }

    /// The id of our span in the trace: 16 lower-case hex digits.
    #[must_use]
    pub fn span(&self) -> String {
        hex(&self.span)
    }

    /// The id of the caller's span; `None` when the trace starts here, and then a `tracestate` header is not passed on.
    #[must_use]
    pub fn parent(&self) -> Option<String> {
        self.parent.as_ref().map(|parent| hex(parent))
    }

    /// The `traceparent` header for the upstream: our span is its parent.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", hex(&self.id), hex(&self.span), u8::from(self.sampled))
    }
}

/// Trace id, parent id and the sampled flag of a well-formed header.
fn parse(header: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    // `version "-" trace-id "-" parent-id "-" flags`; later versions may go on after another dash (3.2.2, 4.3).
    let mut parts = header.splitn(5, '-');
    let [version] = unhex(parts.next()?)?;
    let id: [u8; 16] = unhex(parts.next()?)?;
    let parent: [u8; 8] = unhex(parts.next()?)?;
    let [flags] = unhex(parts.next()?)?;
    let rest = parts.next();
    let well_formed = version != 0xff && (version != 0 || rest.is_none()) && id != [0; 16] && parent != [0; 8];
    well_formed.then_some((id, parent, flags & 1 == 1))
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Exactly `N` bytes in lower-case hex; upper case is not well-formed.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Trace;

    const ID: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    #[test]
    fn continues_a_well_formed_trace_with_a_span_of_its_own() {
        for (flags, passed_on) in [("01", "01"), ("00", "00"), ("03", "01"), ("fe", "00")] {
            let trace = Trace::begin(Some(&format!("00-{ID}-{PARENT}-{flags}")), [7; 24]);
            assert_eq!(trace.id(), ID);
            assert_eq!(trace.parent().as_deref(), Some(PARENT));
            assert_eq!(trace.traceparent(), format!("00-{ID}-0707070707070707-{passed_on}"));
        }
    }

    #[test]
    fn reads_what_it_knows_of_later_versions() {
        for header in [format!("cc-{ID}-{PARENT}-01"), format!("01-{ID}-{PARENT}-01-what-comes-next")] {
            assert_eq!(Trace::begin(Some(&header), [7; 24]).id(), ID, "{header}");
        }
    }

    #[test]
    fn starts_a_new_trace_when_the_header_is_not_well_formed() {
        let zeros = "0".repeat(32);
        for header in [
            String::new(),
            "00".to_owned(),
            format!("00-{ID}-{PARENT}"),
            format!("00-{ID}-{PARENT}-1"),
            format!("00-{ID}-{PARENT}-001"),
            format!("00-{ID}-{PARENT}-01-"),
            format!("00-{ID}-{PARENT}-01-extra"),
            format!("cc-{ID}-{PARENT}-01.extra"),
            format!("ff-{ID}-{PARENT}-01"),
            format!("0-{ID}-{PARENT}-01"),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{}-{PARENT}-01", ID.to_uppercase()),
            format!("00-{ID}-{}-01", PARENT.to_uppercase()),
            format!("00-{}-{PARENT}-01", &ID[1..]),
            format!("00-{ID}a-{PARENT}-01"),
            format!("00-{ID}-{PARENT}-0g"),
            format!(" 00-{ID}-{PARENT}-01"),
            format!("00-{ID}-{PARENT}-01 "),
            format!("00_{ID}_{PARENT}_01"),
        ] {
            let trace = Trace::begin(Some(&header), [7; 24]);
            assert_eq!((trace.id(), trace.parent()), ("07".repeat(16), None), "{header:?}");
            assert_eq!(trace.traceparent(), format!("00-{}-{}-01", "07".repeat(16), "07".repeat(8)));
        }
    }

    #[test]
    fn never_sends_an_id_of_zeros() {
        assert_eq!(Trace::begin(None, [0; 24]).traceparent(), format!("00-{}-{}-01", "01".repeat(16), "01".repeat(8)));
    }

    proptest! {
        #[test]
        fn what_it_sends_it_would_continue(random in any::<[u8; 24]>(), next in any::<[u8; 24]>(), header in "\\PC{0,60}") {
            let sent = Trace::begin(Some(&header), random);
            let continued = Trace::begin(Some(&sent.traceparent()), next);
            prop_assert_eq!(continued.id(), sent.id());
            prop_assert_eq!(continued.parent(), Some(sent.span()));
        }
    }
}
