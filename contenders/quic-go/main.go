// A minimal HTTP/3 server with quic-go on one thread: the files of a folder, kept in memory.
//
//	quic-go --listen ADDRESS --root FOLDER --cert FILE --key FILE
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:4433", "UDP address")
	root := flag.String("root", ".", "folder of the files")
	chain := flag.String("cert", "", "certificate chain, PEM")
	key := flag.String("key", "", "private key, PEM")
	version := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *version {
		fmt.Println("quic-go", library())
		return
	}
	runtime.GOMAXPROCS(1)
	files, err := load(*root)
	if err != nil {
		log.Fatalf("--root: %v", err)
	}
	certificate, err := tls.LoadX509KeyPair(*chain, *key)
	if err != nil {
		log.Fatalf("--cert, --key: %v", err)
	}
	server := http3.Server{
		Addr:       *listen,
		TLSConfig:  http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		QUICConfig: &quic.Config{Allow0RTT: true, MaxIncomingStreams: 256},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			content, ok := files[request.URL.Path]
			if !ok {
				http.NotFound(w, request)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			// A client that fails concerns nobody else.
			_, _ = w.Write(content)
		}),
	}
	log.Fatal(server.ListenAndServe())
}

// load reads the files of a folder, without its subfolders.
func load(root string) (map[string][]byte, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, entry.Name()))
		if err != nil {
			return nil, err
		}
		files["/"+entry.Name()] = content
	}
	return files, nil
}

// library returns the version of quic-go in this program.
func library() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/quic-go/quic-go" {
			return module.Version
		}
	}
	return "of unknown version"
}
