//! A private MariaDB.

use std::fs;
use std::io::{self, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::process::{Kind, Process, find, folder_in, is_root};

const PACKAGE: &str = "mariadb-server";

/// Run at every start: a database, and a user who may come in over TCP. Nothing but loopback reaches the port.
const INIT: &str = "create database if not exists sluice character set utf8mb4;\n\
    create user if not exists sluice@'%' identified by 'sluice';\n\
    grant all privileges on *.* to sluice@'%';\n";

/// A MariaDB server with an empty database `sluice`.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
}

impl MariaDb {
    /// Installs a data folder `mariadb` inside `parent` and starts a server on it.
    pub fn start(parent: &Path) -> anyhow::Result<Self> {
        let folder = folder_in(parent, "mariadb")?;
        install(&folder)?;
        let kind = Kind { program: "mariadbd", package: PACKAGE, arguments: Box::new(arguments), ready };
        Ok(Self { process: Process::start(kind, folder)? })
    }

    /// How to reach its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://sluice:sluice@127.0.0.1:{}/sluice", self.process.port())
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.process.pid()
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again on the same port and data, killing it first if it runs.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.process.restart()
    }

    /// SIGSTOP: it accepts connections and answers nothing.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.process.freeze()
    }

    /// SIGCONT.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.process.thaw()
    }
}

fn install(folder: &Path) -> anyhow::Result<()> {
    let program = find("mariadb-install-db", PACKAGE)?;
    fs::create_dir(folder.join("tmp"))?;
    let mut command = Command::new(&program);
    command
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M"])
        .arg(format!("--datadir={}", folder.join("data").display()))
        // A server that starts removes what looks like its leavings in the temporary folder: never share one.
        .arg(format!("--tmpdir={}", folder.join("tmp").display()))
        .stdin(Stdio::null());
    if is_root() {
        command.arg("--user=root");
    }
    let output = command.output().with_context(|| format!("starting {}", program.display()))?;
    ensure!(output.status.success(), "{} failed:\n{}", program.display(), String::from_utf8_lossy(&output.stderr));
    fs::write(folder.join("init.sql"), INIT)?;
    Ok(())
}

fn arguments(folder: &Path, port: u16) -> Vec<String> {
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", folder.join("data").display()),
        format!("--tmpdir={}", folder.join("tmp").display()),
        format!("--socket={}", folder.join("socket").display()),
        format!("--pid-file={}", folder.join("pid").display()),
        format!("--init-file={}", folder.join("init.sql").display()),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--innodb-flush-log-at-trx-commit=1".to_owned(),
        "--innodb-log-file-size=16M".to_owned(),
    ];
    if is_root() {
        arguments.push("--user=root".to_owned());
    }
    arguments
}

fn ready(mut stream: TcpStream) -> io::Result<bool> {
    // The server speaks first: a length, a counter, then protocol version 10. The listener opens after the init file ran.
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    Ok(head[4] == 10)
}
