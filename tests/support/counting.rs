//! A server that counts requests.

use super::PATIENCE;
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Condvar, Mutex},
    thread,
};

/// Counts the POST requests to each path, to observe the effects of a tool.
pub struct Counting {
    address: SocketAddr,
    counts: Arc<(Mutex<HashMap<String, u32>>, Condvar)>,
}

impl Counting {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let counting = Self { address: listener.local_addr().unwrap(), counts: Arc::default() };
        let counts = Arc::clone(&counting.counts);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head);
                    let Some(path) = head.strip_prefix("POST ").and_then(|rest| rest.split(' ').next())
                    else {
                        return;
                    };
                    *counts.0.lock().unwrap().entry(path.to_owned()).or_default() += 1;
                    counts.1.notify_all();
                    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
                });
            }
        });
        counting
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn count(&self, path: &str) -> u32 {
        self.counts.0.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    pub fn wait_for(&self, path: &str) {
        let counts = self.counts.0.lock().unwrap();
        let waiting = |counts: &mut HashMap<String, u32>| !counts.contains_key(path);
        let waited = self.counts.1.wait_timeout_while(counts, PATIENCE, waiting).unwrap();
        assert!(!waited.1.timed_out(), "no POST to {path}");
    }
}
