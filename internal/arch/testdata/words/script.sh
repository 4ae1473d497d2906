#!/bin/sh
echo "the treaty" # sounding
