//! A script and a call of it: by its hash, and by its text where the server does not know the hash. Running the text is
//! one step; loading first and running afterwards could be separated by a failover or a flush.

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, ToRedisArgs};

/// A script as it is embedded in this program.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// A call to be filled with keys and arguments, in the order its header names them.
    pub(super) fn call(&'static self) -> Call {
        Call { script: self, keys: Vec::new(), arguments: Vec::new() }
    }
}

/// One call of a script.
pub(super) struct Call {
    script: &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn key(&mut self, key: impl ToRedisArgs) -> &mut Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    pub(super) fn arg(&mut self, argument: impl ToRedisArgs) -> &mut Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    pub(super) async fn run<T: FromRedisValue>(&self, connection: &mut impl ConnectionLike) -> RedisResult<T> {
        match self.command("EVALSHA", &self.script.hash).query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.command("EVAL", self.script.text).query_async(connection).await
            }
            answer => answer,
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}
