//! The paths of the chat without a WebSocket: what each of them asks for. Answering is `fallback`'s.

/// What a path under `/api/chat/` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// The party's open sessions.
    Sessions,
    /// Messages of a session.
    Messages,
    /// The waiting line of an agent's shop.
    Waiting,
    /// The agents of an agent's shop.
    Agents,
    /// The stream of frames.
    Events,
    /// Open a session.
    Open,
    /// Store a message.
    Send,
    /// Move a read cursor.
    Read,
    /// Carry out any other frame.
    Frame,
}

/// Path, method, question, label of metrics.
const PATHS: [(&str, &str, Question, &str); 9] = [
    ("/api/chat/sessions", "GET", Question::Sessions, "chat.sessions"),
    ("/api/chat/sessions", "POST", Question::Open, "chat.open"),
    ("/api/chat/messages", "GET", Question::Messages, "chat.messages"),
    ("/api/chat/messages", "POST", Question::Send, "chat.send"),
    ("/api/chat/events", "GET", Question::Events, "chat.events"),
    ("/api/chat/read", "POST", Question::Read, "chat.read"),
    ("/api/chat/frames", "POST", Question::Frame, "chat.frame"),
    ("/api/chat/waiting", "GET", Question::Waiting, "chat.waiting"),
    ("/api/chat/agents", "GET", Question::Agents, "chat.agents"),
];

impl Question {
    /// The question of a path and a method; the methods of the path when it takes no such one; nothing for another path.
    pub(crate) fn find(path: &str, method: &str) -> Option<Result<Self, String>> {
        let of_path = || PATHS.iter().filter(|(known, ..)| *known == path);
        let found = of_path().find(|(_, taken, question, _)| *taken == method || (method == "HEAD" && question.is_list()));
        match found {
            Some((_, _, question, _)) => Some(Ok(*question)),
            None => {
                let methods: Vec<&str> = of_path()
                    .flat_map(|(_, taken, question, _)| if question.is_list() { vec!["GET", "HEAD"] } else { vec![*taken] })
                    .collect();
                (!methods.is_empty()).then(|| Err(methods.join(", ")))
            }
        }
    }

    /// The label of metrics and of the access log.
    pub(crate) fn label(self) -> &'static str {
        PATHS.iter().find(|(_, _, question, _)| *question == self).map_or("chat", |(.., label)| label)
    }

    fn is_list(self) -> bool {
        matches!(self, Self::Sessions | Self::Messages | Self::Waiting | Self::Agents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_which_methods_it_takes() {
        let find = |path, method| Question::find(path, method);
        assert_eq!(find("/api/chat/sessions", "GET"), Some(Ok(Question::Sessions)));
        assert_eq!(find("/api/chat/sessions", "HEAD"), Some(Ok(Question::Sessions)));
        assert_eq!(find("/api/chat/sessions", "POST"), Some(Ok(Question::Open)));
        assert_eq!(find("/api/chat/sessions", "PUT"), Some(Err("GET, HEAD, POST".to_owned())));
        assert_eq!(find("/api/chat/events", "HEAD"), Some(Err("GET".to_owned())), "a stream has an end only when it is broken off");
        assert_eq!(find("/api/chat/read", "GET"), Some(Err("POST".to_owned())));
        assert_eq!(find("/api/chat/else", "GET"), None);
    }

    #[test]
    fn every_question_has_a_label_of_its_own() {
        let labels: std::collections::BTreeSet<_> = PATHS.iter().map(|(_, _, question, _)| question.label()).collect();
        assert_eq!(labels.len(), PATHS.len());
    }
}
