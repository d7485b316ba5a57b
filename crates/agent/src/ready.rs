//! Answers whether this agent's broker is ready, over HTTP.
//!
//! One request at a time, and whatever is asked gets the same answer: the
//! kubelet is the only one that should ask.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::notice::Notice;

/// How long one who asks may take for a step of it.
const LIMIT: Duration = Duration::from_secs(1);

/// Whether the broker is ready; why not, if it is not.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<Result<(), &'static str>>>);

impl Default for Readiness {
    fn default() -> Self {
        Readiness(Arc::new(Mutex::new(Err("the broker has not been started"))))
    }
}

impl Readiness {
    /// Takes in what an inner stage said. The lead is ready when the program
    /// has started, which is when enough brokers are online; a worker is when it
    /// is online itself.
    pub fn take(&self, notice: &Notice, leads: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = match notice {
            // Two processes speak: the program may have been heard before the one that
            // started its broker. Only the loss of a broker takes readiness back.
            Notice::BrokerStarted { .. } if state.is_ok() => return,
            Notice::BrokerStarted { .. } if leads => Err("waiting for enough brokers"),
            Notice::BrokerStarted { .. } => Err("waiting for the lead"),
            Notice::ProgramStarted if leads => Ok(()),
            Notice::Online if !leads => Ok(()),
            Notice::BrokerLost { .. } => Err("the broker ended and will be started again"),
            Notice::BrokerEnded { .. } | Notice::Released => Err("the broker ended"),
            Notice::Failed { .. } => Err("the broker cannot be started"),
            Notice::Online | Notice::ProgramStarted | Notice::Flushed => return,
        };
        *state = ready;
    }

    /// Answers on `port` from now on.
    pub fn serve(&self, port: u16) -> io::Result<()> {
        // The first takes IPv4 as well, unless the system has no IPv6 at all.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        let readiness = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    // Whoever asked and went away gets no answer.
                    Ok(stream) => drop(answer(stream, &readiness.text())),
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        });
        Ok(())
    }

    fn text(&self) -> String {
        let ready = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, body) = match ready {
            Ok(()) => ("200 OK", "ready\n".to_owned()),
            Err(why) => ("503 Service Unavailable", format!("not ready: {why}\n")),
        };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
    }
}

fn answer(mut stream: TcpStream, text: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    // Part of the request is enough to answer, and all of it that is read.
    let read = stream.read(&mut [0; 1024])?;
    if read > 0 {
        stream.write_all(text.as_bytes())?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // The rest is taken, so that closing does not take the answer back.
    let _ = stream.read(&mut [0; 4096]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_ready_with_its_program_and_a_worker_when_online() {
        let started = Notice::BrokerStarted { process: 1 };
        let ended = Notice::BrokerEnded { code: 0, killed: false, tail: String::new() };
        for (leads, ready) in [(true, Notice::ProgramStarted), (false, Notice::Online)] {
            let readiness = Readiness::default();
            let other = if leads { Notice::Online } else { Notice::ProgramStarted };
            for (notice, expected) in [
                (&started, "503"),
                (&other, "503"),
                (&ready, "200"),
                (&Notice::Flushed, "200"),
                // Heard late, on a busy machine.
                (&started, "200"),
                (&Notice::BrokerLost { code: 1 }, "503"),
                (&started, "503"),
                (&ready, "200"),
                (&ended, "503"),
            ] {
                readiness.take(notice, leads);
                let text = readiness.text();
                assert!(text.starts_with(&format!("HTTP/1.1 {expected}")), "{notice:?} {text}");
            }
        }
    }

    #[test]
    fn garbage_and_silence_do_not_stop_the_answers() {
        let port = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let readiness = Readiness::default();
        readiness.serve(port).unwrap();
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        drop(connect());
        let silent = connect();
        let mut garbage = connect();
        // The far end may close first, which is its right.
        let _ = garbage.write_all(&[0xff; 100_000]);
        drop(garbage);
        let mut asking = connect();
        asking.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        asking.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("503") && text.ends_with("not ready: the broker has not been started\n")
        );
        drop(silent);
    }
}
