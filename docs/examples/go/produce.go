// Writes records to the topic "payments", which it creates if need be. Standard library only.
//
//	go run produce.go
package main

import (
	"bytes"
	"cmp"
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

func call(path string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	response, err := http.Post(url+path, "application/json", bytes.NewReader(sent))
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

// callAgain repeats what is worth it and cannot write records twice.
func callAgain(path string, body, answer any) error {
	for attempt := 1; ; attempt++ {
		err := call(path, body, answer)
		problem, ok := err.(*Problem)
		if err == nil || !ok || !problem.Retryable || problem.MayHaveApplied || attempt == 5 {
			return err
		}
		time.Sleep(100 * time.Millisecond << attempt)
	}
}

func main() {
	var topic struct{}
	err := call("/v1/topics", map[string]any{"name": "payments", "partitions": 3}, &topic)
	if problem, ok := err.(*Problem); err != nil && (!ok || problem.Code != "TOPIC_ALREADY_EXISTS") {
		log.Fatal(err)
	}
	records := []Record{
		{Key: "ana", Value: map[string]any{"amount": 12, "currency": "BRL"}},
		{Key: "bia", Value: map[string]any{"amount": 7, "currency": "BRL"}, Headers: map[string]string{"source": "web"}},
		{Key: "ana", Value: map[string]any{"amount": 30, "currency": "BRL"}},
	}
	var written Results
	if err := callAgain("/v1/topics/payments/records", map[string]any{"records": records}, &written); err != nil {
		log.Fatal(err)
	}
	for _, r := range written.Results {
		fmt.Printf("partition %d: %d records from offset %d on\n", r.Partition, r.Count, r.BaseOffset)
	}
}
