//! Tests of forms and uploads on the engine `roadrunner`.

use std::sync::Arc;

use surus::event::Body;

use super::{dump, on_scenes, scene};
use crate::engine_contract::subject::{bytes, until};

#[test]
fn form_is_parsed_into_a_tree() {
    on_scenes(|engine| async move {
        let ask = scene(&engine, "/dump").post(
            "application/x-www-form-urlencoded; charset=utf-8",
            "a[]=1&a[]=2&b[c]=3",
        );
        let dump = dump(&engine, ask).await;
        assert_eq!(dump["parsed"], true);
        let body = r#"{"a":["1","2"],"b":{"c":"3"}}"#;
        assert_eq!(dump["body"], base64(body));
    });
}

#[test]
fn form_arrives_as_it_is_if_its_raw_body_is_wanted() {
    on_scenes(|engine| async move {
        let engine = engine.with(|settings| settings.roadrunner_raw_body = true);
        let form = "a[]=1&b=%20";
        let ask = scene(&engine, "/dump").post("application/x-www-form-urlencoded", form);
        let dump = dump(&engine, ask).await;
        assert_eq!(dump["parsed"], false);
        assert_eq!(dump["body"], base64(form));
    });
}

fn base64(text: &str) -> String {
    use std::process::{Command, Stdio};
    let mut child = Command::new("base64")
        .arg("-w0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// A form with a field and a file of this content.
fn multipart(name: &str, content: &[u8]) -> Vec<u8> {
    [
        b"--limit\r\nContent-Disposition: form-data; name=\"a[]\"\r\n\r\n1\r\n--limit\r\n"
            .as_slice(),
        format!(
            "Content-Disposition: form-data; name=\"{name}\"; filename=\"x.bin\"\r\n\
             Content-Type: image/png\r\n\r\n"
        )
        .as_bytes(),
        content,
        b"\r\n--limit--\r\n",
    ]
    .concat()
}

#[test]
fn upload_is_a_file_that_the_worker_may_keep() {
    on_scenes(|engine| async move {
        let content = bytes(3 << 20);
        let kept = engine.writable().join("kept");
        let mut file = tempfile::tempfile().unwrap();
        let body = multipart("f[deep]", &content);
        std::io::Write::write_all(&mut file, &body).unwrap();
        let spooled = Body::Spooled {
            file: Arc::new(file.into()),
            len: body.len() as u64,
        };
        let bodies = [
            Body::Memory(multipart("f", &content).into()),
            Body::Memory(multipart("f", b"").into()),
            spooled,
        ];
        for (n, body) in bodies.into_iter().enumerate() {
            let url = format!("/upload?to={}{n}", kept.display());
            let ask = scene(&engine, if n == 0 { "/upload" } else { &url });
            let answer = dump(
                &engine,
                ask.post_body("multipart/form-data; boundary=limit", body),
            );
            let answer = answer.await;
            let uploads = &answer[0]["f"];
            let upload = if n == 2 { &uploads["deep"] } else { uploads };
            let size = if n == 1 { 0 } else { content.len() };
            assert_eq!(upload["name"], "x.bin", "{answer}");
            assert_eq!(upload["mime"], "image/png");
            assert_eq!(
                (&upload["size"], &upload["error"]),
                (&size.into(), &0.into())
            );
            assert_eq!(answer[1], serde_json::json!({"a": ["1"]}));
            let path = std::path::PathBuf::from(upload["tmpName"].as_str().unwrap());
            until("what was not moved is deleted", || !path.exists()).await;
            if n > 0 {
                let moved = std::fs::metadata(format!("{}{n}", kept.display())).unwrap();
                assert_eq!(moved.len(), size as u64);
            }
        }
    });
}
