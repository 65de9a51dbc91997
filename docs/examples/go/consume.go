// Prints the records of "payments", and goes on where the last run stopped. Standard library only.
//
//	go run consume.go [file that remembers the offsets]
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
)

var url = cmp.Or(os.Getenv("RIACHO_URL"), "http://localhost:8080")

type Wanted struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    *int64 `json:"offset,omitempty"` // Without one: from the oldest record on.
}

type Fetched struct {
	Partitions []struct {
		Partition  int   `json:"partition"`
		NextOffset int64 `json:"next_offset"`
		Records    []struct {
			Offset int64           `json:"offset"`
			Key    string          `json:"key"`
			Value  json.RawMessage `json:"value"`
		} `json:"records"`
		Error *struct {
			Code   string `json:"code"`
			Detail string `json:"detail"`
		} `json:"error"`
	} `json:"partitions"`
}

func decode(response *http.Response, err error, answer any) error {
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s", response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func partitionCount(topic string) (int, error) {
	var described struct {
		Partitions int `json:"partitions"`
	}
	response, err := http.Get(url + "/v1/topics/" + topic)
	err = decode(response, err, &described)
	return described.Partitions, err
}

func fetch(wanted []Wanted) (fetched Fetched, err error) {
	// One call for all partitions; it waits up to a second for the first record.
	body, err := json.Marshal(map[string]any{
		"partitions": wanted, "max_wait_ms": 1000, "value_format": "json",
	})
	if err != nil {
		return fetched, err
	}
	response, err := http.Post(url+"/v1/fetch", "application/json", bytes.NewReader(body))
	err = decode(response, err, &fetched)
	return fetched, err
}

func main() {
	memory := "payments.offsets"
	if len(os.Args) > 1 {
		memory = os.Args[1]
	}
	offsets := map[int]int64{}
	if saved, err := os.ReadFile(memory); err == nil {
		if err := json.Unmarshal(saved, &offsets); err != nil {
			log.Fatal(err)
		}
	}
	partitions, err := partitionCount("payments")
	if err != nil {
		log.Fatal(err)
	}
	for {
		var wanted []Wanted
		for partition := range partitions {
			w := Wanted{Topic: "payments", Partition: partition}
			if offset, known := offsets[partition]; known {
				w.Offset = &offset
			}
			wanted = append(wanted, w)
		}
		fetched, err := fetch(wanted)
		if err != nil {
			log.Fatal(err)
		}
		count := 0
		for _, p := range fetched.Partitions {
			if p.Error != nil {
				log.Fatalf("%s: %s", p.Error.Code, p.Error.Detail)
			}
			for _, record := range p.Records {
				fmt.Println(p.Partition, record.Offset, record.Key, string(record.Value))
				count++
			}
			offsets[p.Partition] = p.NextOffset
		}
		if count == 0 {
			return // Nothing came for a second.
		}
		// First the work, then the offset: a crash in between repeats records and loses none.
		saved, _ := json.Marshal(offsets)
		if err := os.WriteFile(memory, saved, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
