//! One connection to a server: an inference request with binary tensors, and its reply. No more of HTTP
//! than BatchMaker's server answers with.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use batchmaker_wire::{EncodedBody, HEADER_LENGTH, InferResponse, decode_response};

/// A server that takes longer does not answer at all.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// A reply, or the status and text of an error.
pub(crate) type Reply = Result<InferResponse, (u16, String)>;

/// A kept connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Connection {
    /// Connects to a server at `url`, as `http://127.0.0.1:8000`.
    pub(crate) fn open(url: &str) -> anyhow::Result<Self> {
        let address = url.strip_prefix("http://").unwrap_or(url).to_owned();
        let stream = TcpStream::connect(&address)
            .with_context(|| format!("cannot connect to the server at {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Self { stream: BufReader::new(stream), address })
    }

    /// Asks a model, and waits for the whole answer.
    pub(crate) fn infer(&mut self, model: &str, body: &EncodedBody) -> anyhow::Result<Reply> {
        self.exchange(model, body).with_context(|| format!("model {model} at {}", self.address))
    }

    fn exchange(&mut self, model: &str, body: &EncodedBody) -> anyhow::Result<Reply> {
        let mut head = format!(
            "POST /v2/models/{model}/infer HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n",
            self.address,
            body.bytes.len()
        );
        if let Some(length) = body.header_length {
            head += &format!("{HEADER_LENGTH}: {length}\r\n");
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(&body.bytes);
        self.stream.get_mut().write_all(&bytes).context("the server takes no request")?;
        let status = self.line()?;
        let status: u16 = status
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("not an answer of HTTP: {status:?}"))?;
        let (mut length, mut header_length) = (None, None);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let number = || value.trim().parse::<usize>();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(number()?),
                name if name == HEADER_LENGTH => header_length = Some(number()?),
                _ => {}
            }
        }
        let mut reply = vec![0; length.context("an answer of unknown length")?];
        self.stream.read_exact(&mut reply).context("the answer breaks off")?;
        Ok(match status {
            200 => Ok(decode_response(&reply, header_length)?),
            _ => Err((status, String::from_utf8_lossy(&reply).into_owned())),
        })
    }

    /// A line of the answer's head, without its end; empty at the end of the head.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).context("the server does not answer")?;
        ensure!(read > 0, "the server closed the connection");
        if !line.ends_with("\r\n") {
            bail!("the head of the answer breaks off");
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers one request so.
    fn ask(answer: &'static str) -> anyhow::Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1000];
            let read = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let body = EncodedBody { bytes: b"{}".to_vec(), header_length: Some(2) };
        let reply = Connection::open(&url)?.infer("m", &body);
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /v2/models/m/infer HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("inference-header-content-length: 2\r\n"), "{request}");
        reply
    }

    #[test]
    fn replies_and_errors() {
        let reply =
            ask("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nContent-Length: 33\r\n\
                         \r\n{\"model_name\":\"m\",\"outputs\":[]}\r\n");
        assert_eq!(reply.unwrap().unwrap().model_name, "m");
        let error = ask("HTTP/1.1 400 Bad Request\r\ncontent-length: 3\r\n\r\nno!").unwrap();
        assert_eq!(error.unwrap_err(), (400, "no!".to_owned()));
        assert!(ask("").is_err());
        assert!(ask("HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n{}").is_err());
    }
}
