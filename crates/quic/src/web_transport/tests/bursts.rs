//! Much that is small and comes at once on the layer's own streams.

use super::*;

#[test]
fn the_layer_reads_much_on_its_streams_in_parts() {
    for stream in [REQUEST, CLIENT_CONTROL] {
        let mut pipe = Pipe::served();
        for _ in 0..100 {
            let mut piece = Vec::new();
            if stream == REQUEST {
                frame::encode_head(frame_type::DATA, 1000, &mut piece);
            }
            // Empty capsules, or empty frames, of an unknown type.
            piece.extend([0x21, 0].repeat(500));
            pipe.put(stream, piece);
        }
        if stream == REQUEST {
            pipe.put(stream, close_capsule(7, "bye"));
        } else {
            // A second SETTINGS frame.
            pipe.put(stream, vec![4, 0]);
        }
        let mut before = pipe.unread_len(stream);
        pipe.with(|layer, end| layer.handle_readable(end, stream));
        let mut calls = 1;
        while pipe.layer.has_unread() {
            let read = before - pipe.unread_len(stream);
            assert!((1..10).contains(&read), "{read} pieces at once");
            before -= read;
            pipe.with(|layer, end| layer.read_on(end));
            calls += 1;
        }
        assert!(calls > 10, "{calls}");
        assert_eq!(pipe.unread_len(stream), 0);
        let events = pipe.events();
        assert!(
            events.iter().any(|event| event.starts_with("lost")),
            "{events:?}"
        );
    }
}
