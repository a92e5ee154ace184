//! Tests of forms and uploads on the engine `roadrunner`.

use std::sync::Arc;

use surus::event::{Body, Failure};

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
    multipart_with(name, "x.bin", content)
}

fn multipart_with(name: &str, file_name: &str, content: &[u8]) -> Vec<u8> {
    [
        b"--limit\r\nContent-Disposition: form-data; name=\"a[]\"\r\n\r\n1\r\n--limit\r\n"
            .as_slice(),
        format!(
            "Content-Disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\n\
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

#[test]
fn upload_with_a_forbidden_extension_arrives_as_its_error() {
    const KIND: &str = "multipart/form-data; boundary=limit";
    let body = || Body::Memory(multipart_with("f", "shell.PHP", b"<?php").into());
    on_scenes(|engine| async move {
        let taken = dump(&engine, scene(&engine, "/dump").post_body(KIND, body())).await;
        assert_eq!(taken["uploads"]["f"]["error"], 0);
    });
    on_scenes(|engine| async move {
        let engine = engine.with(|settings| {
            settings.roadrunner_uploads_forbid = vec![".php".to_string()];
        });
        let refused = dump(&engine, scene(&engine, "/dump").post_body(KIND, body())).await;
        let expected = serde_json::json!({
            "name": "shell.PHP", "mime": "image/png", "size": 0, "error": 8, "tmpName": "",
        });
        assert_eq!(refused["uploads"]["f"], expected);
    });
}

#[test]
fn form_with_too_many_parts_is_rejected() {
    on_scenes(|engine| async move {
        let part = b"--limit\r\nContent-Disposition: form-data; name=\"a[]\"\r\n\r\n1\r\n";
        let form = |parts: usize| [part.repeat(parts), b"--limit--".to_vec()].concat();
        let kind = "multipart/form-data; boundary=limit";
        let sent = |parts| scene(&engine, "/dump").post(kind, form(parts));
        let taken = dump(&engine, sent(1000)).await;
        assert_eq!(taken["parsed"], true);
        let refused = engine.answer(sent(1001)).await;
        let is_named = matches!(&refused, Err(Failure::BodyTooLarge(why)) if why.contains("1,000"));
        assert!(is_named, "{refused:?}");
        assert_eq!(dump(&engine, sent(1)).await["parsed"], true);
    });
}
