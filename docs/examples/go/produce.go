// Writes records to the topic "payments", which it creates if need be. Standard library only.
//
//	go run produce.go
package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

var url = cmp.Or(os.Getenv("RIACHO_URL"), "http://localhost:8080")

// Problem is what the gateway answers when it says no.
type Problem struct {
	Code           string `json:"code"`
	Detail         string `json:"detail"`
	Retryable      bool   `json:"retryable"`
	MayHaveApplied bool   `json:"may_have_applied"`
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

type Record struct {
	Topic   string            `json:"topic"`
	Key     string            `json:"key"`
	Value   any               `json:"value"`
	Headers map[string]string `json:"headers,omitempty"`
}

type Results struct {
	Results []struct {
		Partition  int   `json:"partition"`
		BaseOffset int64 `json:"base_offset"`
		Count      int   `json:"count"`
	} `json:"results"`
}

// call sends body to path; with a key, it is done once however often it is sent.
func call(path, key string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest("POST", url+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		problem := &Problem{Code: response.Status}
		_ = json.NewDecoder(response.Body).Decode(problem)
		return problem
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// callOnce repeats what may help. The key makes all tries one call, each answered as the first.
func callOnce(path string, body, answer any) error {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := call(path, hex.EncodeToString(random), body, answer)
		problem, refused := err.(*Problem)
		if err == nil || attempt == 5 || refused && !problem.Retryable && !problem.MayHaveApplied {
			return err
		}
		time.Sleep(100 * time.Millisecond << attempt)
	}
}

func main() {
	var topic struct{}
	err := call("/v1/topics", "", map[string]any{"name": "payments", "partitions": 3}, &topic)
	if problem, ok := err.(*Problem); err != nil && (!ok || problem.Code != "TOPIC_ALREADY_EXISTS") {
		log.Fatal(err)
	}
	records := []Record{
		{"payments", "ana", map[string]any{"amount": 12, "currency": "BRL"}, nil},
		{"payments", "bia", map[string]any{"amount": 7, "currency": "BRL"}, map[string]string{"source": "web"}},
		{"payments", "ana", map[string]any{"amount": 30, "currency": "BRL"}, nil},
	}
	var written Results
	if err := callOnce("/v1/atomic", map[string]any{"records": records}, &written); err != nil {
		log.Fatal(err)
	}
	for _, r := range written.Results {
		fmt.Printf("partition %d: %d records from offset %d on\n", r.Partition, r.Count, r.BaseOffset)
	}
}
